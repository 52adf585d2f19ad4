// TensorBoard in the dashboard's header: a link that opens it, and a line that says why there is nothing to open.

import { element, icon, setAttribute, setText } from "./dom.js";
import { isDark, serverUrl } from "./page.js";

/** JupyterLab's extension takes this event and opens a tab of its own; elsewhere the link opens the browser's. */
const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";
const STARTING = "TensorBoard is starting beside the chief";
const NO_EXTENSION =
  "TensorBoard cannot be opened here: this Jupyter server runs without tfos_lab's extension. Restart it; if that does " +
  "not help: jupyter server extension enable tfos_lab.jupyter_server. The link below works on the kernel's machine.";

export class TensorBoardLink {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {boolean | null} whether the server can show it; null until it was asked */
    this.served = null;
    this.asked = false;
    // The role stays while there is nothing to open, so that a screen reader hears of a link that cannot be followed.
    this.el = element("a", { class: "tfos-button tfos-away", role: "link", target: "_blank", rel: "noopener noreferrer" });
    this.el.append(icon("away"), "TensorBoard");
    this.el.addEventListener("click", (event) => this.open(event));
    this.note = element("div", { class: "tfos-note" });
  }

  update() {
    const { tensorboard } = this.store.view;
    const address = tensorboard && this.address();
    this.el.hidden = !address;
    this.note.hidden = true;
    if (!tensorboard || !address) return;
    if (tensorboard.state !== "starting") this.askServer(address);
    const opens = tensorboard.state !== "starting" && this.served !== false;
    if (opens) setAttribute(this.el, "href", address.href);
    else this.el.removeAttribute("href");
    setAttribute(this.el, "aria-disabled", String(!opens));
    setAttribute(this.el, "title", tensorboard.state === "starting" ? STARTING : "");
    this.tell(this.served === false ? NO_EXTENSION : tensorboard.state === "gone" ? whyGone(tensorboard.reason) : "");
  }

  /** @param {string} sentence */
  tell(sentence) {
    this.note.hidden = !sentence;
    setText(this.note, sentence);
  }

  address() {
    const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(this.store.view.id)}/`);
    if (address && isDark()) address.searchParams.set("darkMode", "true");
    return address;
  }

  /**
   * Asks once whether anybody answers at the address: our extension leads on to TensorBoard, or says why not.
   * @param {URL} address
   */
  async askServer(address) {
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

  /** @param {MouseEvent} event */
  open(event) {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || !this.el.hasAttribute("href")) return;
    const { id, name } = this.store.view;
    const asked = new CustomEvent(OPEN_TENSORBOARD, { detail: { id, name }, cancelable: true });
    if (!document.dispatchEvent(asked)) event.preventDefault();
  }
}

/** @param {string} reason */
function whyGone(reason) {
  return `There is no TensorBoard beside the chief: ${reason}. The link shows what this machine sees of the event files.`;
}
