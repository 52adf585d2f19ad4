// Below the header of a picture that was taken while its run went on: says how it is now, when the page is loaded again.

/** @param {{element: string, run: string, ended: string[], up: string[], waited?: number}} options */
function followRun({ element, run, ended, up, waited = 0 }) {
  const AGAIN_MS = 3000;
  const PATIENCE_MS = 600_000;
  const config = document.getElementById("jupyter-config-data")?.textContent;
  if (!config) return;
  const box = document.getElementById(element);
  if (!box) {
    // The output is not part of the page yet, or the live view has taken its place.
    if (waited < 5000) setTimeout(() => followRun({ element, run, ended, up, waited: waited + 200 }), 200);
    return;
  }
  const seen = box.textContent ?? "";
  const base = new URL(JSON.parse(config).baseUrl ?? "/", document.location.href);
  const later = () => {
    waited += AGAIN_MS;
    if (waited < PATIENCE_MS || box.isConnected) setTimeout(ask, AGAIN_MS);
  };
  const ask = async () => {
    // JupyterLab takes outputs out of the page while they are out of sight.
    if (!box.isConnected) {
      later();
      return;
    }
    try {
      const answer = await fetch(new URL("tfos-lab/clusters", base), { credentials: "same-origin", cache: "no-store" });
      if (!answer.ok) return; // this server knows of no clusters: what is written stays true
      const { clusters } = await answer.json();
      tell(clusters.find((/** @type {{id: string}} */ one) => one.id === run));
    } catch {
      later(); // the server is away
    }
  };
  const tell = (/** @type {{state: string, nodes: {state: string}[]} | undefined} */ cluster) => {
    if (cluster) {
      const running = cluster.nodes.filter(({ state }) => up.includes(state) && !ended.includes(state)).length;
      box.textContent =
        `It runs on (${cluster.state}, ${running}/${cluster.nodes.length} nodes running). This page was loaded meanwhile: ` +
        `the live view comes back as soon as the kernel is free; ■ stops a cell that still runs. ${seen}`;
      later();
      return;
    }
    box.textContent = `It is not followed any more: the run has ended since, or its kernel has. ${seen}`;
    for (const state of box.closest(".tfos")?.querySelectorAll(".tfos-state") ?? []) {
      if (ended.includes(state.getAttribute("data-state") ?? "")) continue;
      state.setAttribute("data-state", "unknown");
      state.textContent = "○ unknown";
    }
  };
  void ask();
}
