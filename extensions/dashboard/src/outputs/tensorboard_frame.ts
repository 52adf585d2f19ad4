// Replaces the sentence of a TensorBoard output by a frame, once TensorBoard has something to show in it. Stands in the
// output itself, without a kernel.

import { element as make } from "../dom";
import { isDark, serverUrl, whenMounted } from "../page";

const INTERVAL_MS = 1500;
const SLOWEST_MS = 5000;
/** An output that is not shown is given up after so long. */
const PATIENCE_MS = 600_000;
const NO_EXTENSION =
  " This Jupyter server runs without tfos_lab's extension: jupyter server extension enable tfos_lab.notebook.server, " +
  "and restart it.";

/** The element to replace by the frame, and the run. */
declare const TFOS_OPTIONS: { element: string; run: string; name: string };

function showTensorBoard(address: URL, box: HTMLElement, name: string): void {
  let waitedMs = 0;
  if (isDark()) address.searchParams.set("darkMode", "true");
  const sentence = [...box.childNodes];
  let intervalMs = INTERVAL_MS;
  const ask = async () => {
    // JupyterLab takes outputs out of the page while they are out of sight.
    if (!box.isConnected) {
      waitedMs += INTERVAL_MS;
      if (waitedMs < PATIENCE_MS) setTimeout(ask, INTERVAL_MS);
      return;
    }
    let answer: Response;
    try {
      answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
    } catch {
      box.textContent = "The Jupyter server does not answer.";
      setTimeout(ask, INTERVAL_MS * 4);
      return;
    }
    const isOurs = Boolean(answer.headers.get("X-Tfos-Lab"));
    if (!isOurs) box.replaceChildren(...sentence, NO_EXTENSION);
    else if (answer.ok) box.replaceChildren(...makeFrame(address, name));
    else if (answer.status === 404) box.replaceChildren(...sentence);
    else {
      // It is starting, or has nothing to show yet; its page says what it waits for.
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      box.textContent = page.body.textContent ?? "";
      setTimeout(ask, intervalMs);
      intervalMs = Math.min(intervalMs * 1.2, SLOWEST_MS);
    }
  };
  box.textContent = `TensorBoard of ${name} is starting…`;
  void ask();
}

function makeFrame(address: URL, name: string): HTMLElement[] {
  const link = make(
    "a",
    { href: address.href, target: "_blank", rel: "noopener" },
    `TensorBoard of ${name} in a tab of its own`,
  );
  link.style.cssText = "display: inline-block; margin-bottom: 4px; color: var(--jp-content-link-color, #0969da)";
  const frame = make("iframe", {
    src: address.href,
    title: `TensorBoard of ${name}`,
    sandbox: "allow-scripts allow-downloads allow-modals",
  });
  frame.style.cssText = "display: block; width: 100%; height: 100%; border: 0";
  const box = make("div", {}, frame);
  box.style.cssText =
    "height: 600px; min-height: 200px; resize: vertical; overflow: hidden; " +
    "border: 1px solid var(--jp-border-color2, #d8dee4); border-radius: 3px";
  return [link, box];
}

const { element, run, name } = TFOS_OPTIONS;
const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(run)}/`);
if (address) whenMounted(element, PATIENCE_MS, (box) => showTensorBoard(address, box, name));
