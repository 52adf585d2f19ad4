// Replaces the sentence of a TensorBoard output by a frame, once TensorBoard has something to show in it. Stands in the
// output itself, without a kernel.

import { element as make } from "../dom";
import { isDark, serverUrl, whileMounted } from "../page";

const INTERVAL_MS = 1500;
const SLOWEST_MS = 5000;
const NO_EXTENSION =
  " This Jupyter server runs without tfos_lab's extension: jupyter server extension enable tfos_lab.notebook.server, " +
  "and restart it.";

/** The element to replace by the frame, and the run. */
declare const TFOS_OPTIONS: { element: string; run: string; name: string };

const { element, run, name } = TFOS_OPTIONS;
let sentence: ChildNode[] | undefined;
let intervalMs = INTERVAL_MS;

async function showTensorBoard(box: HTMLElement, address: URL): Promise<number> {
  if (!sentence) {
    sentence = [...box.childNodes];
    box.textContent = `TensorBoard of ${name} is starting…`;
  }
  let answer: Response;
  try {
    answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
  } catch {
    box.textContent = "The Jupyter server does not answer.";
    return SLOWEST_MS;
  }
  if (!answer.headers.has("X-Tfos-Lab")) box.replaceChildren(...sentence, NO_EXTENSION);
  else if (answer.ok) box.replaceChildren(...makeFrame(address));
  else if (answer.status === 404) box.replaceChildren(...sentence);
  else {
    // It is starting, or has nothing to show yet; its page says what it waits for.
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    box.textContent = page.body.textContent ?? "";
    intervalMs = Math.min(intervalMs * 1.2, SLOWEST_MS);
    return intervalMs;
  }
  return 0;
}

function makeFrame(address: URL): HTMLElement[] {
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

const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(run)}/`);
if (address) {
  if (isDark()) address.searchParams.set("darkMode", "true");
  void whileMounted(element, (box) => showTensorBoard(box, address));
}
