// TensorBoard in the dashboard's header: a link that opens it, and a line that says why there is nothing to open.

import { element, icon, setAttribute, setText } from "./dom";
import { isDark, serverUrl } from "./page";
import type { Store } from "./store";

/** JupyterLab's extension handles this event and opens a tab of its own; elsewhere the link opens one of the browser. */
const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";
const NO_EXTENSION =
  "TensorBoard cannot be opened here: this Jupyter server runs without tfos_lab's extension. Restart it; if that does " +
  "not help: jupyter server extension enable tfos_lab.notebook.server. The link below works on the kernel's machine.";

export class TensorBoardLink {
  // The role stays while there is nothing to open, so that screen readers announce a link that cannot be followed.
  readonly el = element(
    "a",
    { class: "tfos-button tfos-away", role: "link", target: "_blank", rel: "noopener noreferrer" },
    icon("away"),
    "TensorBoard",
  );
  readonly note = element("div", { class: "tfos-note" });
  /** Whether the server can show it; null until it was asked. */
  private served: boolean | null = null;
  private asked = false;

  constructor(private readonly store: Store) {
    this.el.addEventListener("click", (event) => this.open(event));
  }

  update(): void {
    const { tensorboard } = this.store.view;
    const address = tensorboard ? this.address() : null;
    this.el.hidden = !address;
    this.note.hidden = true;
    if (!address) return;
    void this.askServer(address);
    const opens = this.served !== false;
    if (opens) setAttribute(this.el, "href", address.href);
    else this.el.removeAttribute("href");
    setAttribute(this.el, "aria-disabled", String(!opens));
    this.showNote(opens ? "" : NO_EXTENSION);
  }

  private showNote(sentence: string): void {
    this.note.hidden = !sentence;
    setText(this.note, sentence);
  }

  private address(): URL | null {
    const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(this.store.view.id)}/`);
    if (address && isDark()) address.searchParams.set("darkMode", "true");
    return address;
  }

  /** Asks once whether anything answers at the address: our extension redirects to TensorBoard, or says why not. */
  private async askServer(address: URL): Promise<void> {
    if (this.asked) return;
    this.asked = true;
    try {
      const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", redirect: "manual" });
      this.served = answer.type === "opaqueredirect" || answer.headers.has("X-Tfos-Lab");
    } catch {
      this.asked = false; // the server is away: asked again with the next change
    }
    this.update();
  }

  private open(event: MouseEvent): void {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || !this.el.hasAttribute("href")) return;
    const { id, name } = this.store.view;
    const asked = new CustomEvent(OPEN_TENSORBOARD, { detail: { id, name }, cancelable: true });
    if (!document.dispatchEvent(asked)) event.preventDefault();
  }
}
