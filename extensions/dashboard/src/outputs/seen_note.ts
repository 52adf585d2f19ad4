// Below the header of a picture that was taken while its run went on: shows how the run is now, when the page is loaded
// again. Stands in the output itself, without a kernel.

import { serverUrl, whileMounted } from "../page";

const INTERVAL_MS = 3000;

/** What is used of the server's list; see `tfos_lab/notebook/server/cluster_handlers.py`. */
interface Cluster {
  readonly id: string;
  readonly is: string;
}

/** The element to update, the run to ask for, and whether the picture stands for a live view. */
declare const TFOS_OPTIONS: { element: string; run: string; comesBack: boolean };

let seen: string | undefined;

async function showNow(box: HTMLElement, url: URL): Promise<number> {
  seen ??= box.textContent ?? "";
  let answer: Response;
  try {
    answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
  } catch {
    return INTERVAL_MS; // the server is away
  }
  if (!answer.ok) return 0; // this server knows of no clusters: what is written stays true
  const { clusters } = (await answer.json()) as { clusters: Cluster[] };
  const cluster = clusters.find(({ id }) => id === TFOS_OPTIONS.run);
  if (cluster) {
    const picture = TFOS_OPTIONS.comesBack
      ? "This page was loaded meanwhile: the live view comes back as soon as the kernel is free; ■ stops a cell that " +
        "still runs."
      : "This picture does not follow it.";
    box.textContent = `It runs on (${cluster.is}). ${picture} ${seen}`;
    return INTERVAL_MS;
  }
  box.textContent = `It is not followed any more: the run has ended since, or its kernel has. ${seen}`;
  for (const state of box.closest(".tfos")?.querySelectorAll(".tfos-state[data-going]") ?? []) {
    state.removeAttribute("data-going");
    state.setAttribute("data-state", "unknown");
    state.removeAttribute("data-tone");
    state.textContent = "○ unknown";
  }
  return 0;
}

const url = serverUrl("tfos-lab/clusters");
if (url) void whileMounted(TFOS_OPTIONS.element, (box) => showNow(box, url));
