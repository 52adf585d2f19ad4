// Replaces the sentence of a TensorBoard output by a frame, once TensorBoard has something to show in it.

/** @param {{element: string, run: string, name: string, waited?: number}} options */
function showTensorBoard({ element, run, name, waited = 0 }) {
  const AGAIN_MS = 1500;
  const SLOWEST_MS = 5000;
  const PATIENCE_MS = 600_000;
  const box = document.getElementById(element);
  const config = document.getElementById("jupyter-config-data")?.textContent;
  if (!config) return;
  if (!box) {
    // The output is not part of the page yet.
    if (waited < PATIENCE_MS) setTimeout(() => showTensorBoard({ element, run, name, waited: waited + 200 }), 200);
    return;
  }
  const base = new URL(JSON.parse(config).baseUrl ?? "/", document.location.href);
  const address = new URL(`tfos-lab/tb/${encodeURIComponent(run)}/`, base);
  const dark = document.body.dataset.jpThemeLight === "false";
  if (dark) address.searchParams.set("darkMode", "true");
  const sentence = [...box.childNodes];
  let againMs = AGAIN_MS;
  const say = (/** @type {string} */ text) => {
    box.textContent = text;
  };
  const ask = async () => {
    // JupyterLab takes outputs out of the page while they are out of sight.
    if (!box.isConnected) {
      waited += AGAIN_MS;
      if (waited < PATIENCE_MS) setTimeout(ask, AGAIN_MS);
      return;
    }
    let answer;
    try {
      answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
    } catch {
      say("The Jupyter server does not answer.");
      setTimeout(ask, AGAIN_MS * 4);
      return;
    }
    if (answer.ok && answer.headers.get("X-Tfos-Lab")) showFrame();
    else if (!answer.headers.get("X-Tfos-Lab")) {
      box.replaceChildren(
        ...sentence,
        " This Jupyter server runs without tfos_lab's extension: jupyter server extension enable " +
          "tfos_lab.jupyter_server, and restart it.",
      );
    } else {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 404) {
        box.replaceChildren(...sentence);
        return;
      }
      // It is starting, or has nothing to show yet, and says what it waits for.
      say(page.body.textContent ?? "");
      setTimeout(ask, againMs);
      againMs = Math.min(againMs * 1.2, SLOWEST_MS);
    }
  };
  const showFrame = () => {
    const frame = document.createElement("iframe");
    frame.src = address.href;
    frame.title = `TensorBoard of ${name}`;
    frame.setAttribute("sandbox", "allow-scripts allow-downloads allow-modals");
    frame.style.cssText = "display: block; width: 100%; height: 100%; border: 0";
    const link = document.createElement("a");
    link.href = address.href;
    link.target = "_blank";
    link.rel = "noopener";
    link.textContent = `TensorBoard of ${name} in a tab of its own`;
    link.style.cssText = "display: inline-block; margin-bottom: 4px; color: var(--jp-content-link-color, #0969da)";
    const room = document.createElement("div");
    room.style.cssText =
      "height: 600px; min-height: 200px; resize: vertical; overflow: hidden; " +
      "border: 1px solid var(--jp-border-color2, #d8dee4); border-radius: 3px";
    room.append(frame);
    box.replaceChildren(link, room);
  };
  say(`TensorBoard of ${name} is starting…`);
  void ask();
}
