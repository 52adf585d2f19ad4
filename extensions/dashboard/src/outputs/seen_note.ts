// Below the header of a picture that was taken while its run went on: shows how the run is now, when the page is loaded
// again. Stands in the output itself, without a kernel.

import { serverUrl, whenMounted } from "../page";

const INTERVAL_MS = 3000;
/** A picture that is not shown is given up after so long. */
const PATIENCE_MS = 600_000;
/** The live view may have replaced the output. */
const MOUNT_PATIENCE_MS = 5000;

/** What is used of the server's list; see `tfos_lab/notebook/server/cluster_handlers.py`. */
interface Cluster {
  readonly id: string;
  readonly is: string;
}

/** The element to update, and the run to ask for. */
declare const TFOS_OPTIONS: { element: string; run: string };

function followRun(url: URL, box: HTMLElement, run: string): void {
  let waitedMs = 0;
  const seen = box.textContent ?? "";
  const askLater = () => {
    waitedMs += INTERVAL_MS;
    if (waitedMs < PATIENCE_MS || box.isConnected) setTimeout(ask, INTERVAL_MS);
  };
  const ask = async () => {
    // JupyterLab takes outputs out of the page while they are out of sight.
    if (!box.isConnected) {
      askLater();
      return;
    }
    try {
      const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
      if (!answer.ok) return; // this server knows of no clusters: what is written stays true
      const { clusters } = (await answer.json()) as { clusters: Cluster[] };
      show(clusters.find(({ id }) => id === run));
    } catch {
      askLater(); // the server is away
    }
  };
  const show = (cluster: Cluster | undefined) => {
    if (cluster) {
      box.textContent =
        `It runs on (${cluster.is}). This page was loaded meanwhile: the live view comes back as soon as the kernel is ` +
        `free; ■ stops a cell that still runs. ${seen}`;
      askLater();
      return;
    }
    box.textContent = `It is not followed any more: the run has ended since, or its kernel has. ${seen}`;
    for (const state of box.closest(".tfos")?.querySelectorAll(".tfos-state[data-going]") ?? []) {
      state.removeAttribute("data-going");
      state.setAttribute("data-state", "unknown");
      state.textContent = "○ unknown";
    }
  };
  void ask();
}

const url = serverUrl("tfos-lab/clusters");
if (url) whenMounted(TFOS_OPTIONS.element, MOUNT_PATIENCE_MS, (box) => followRun(url, box, TFOS_OPTIONS.run));
