// The Download button of the logs, and the note below the tools where only a part could be saved.

import { element, icon, setText } from "./dom";
import { Download, fileName, saveAs } from "./download";
import { formatBytes } from "./format";
import { textOf } from "./log_lines";
import type { Model } from "./model";
import type { Store } from "./store";

/** Of larger files the progress is shown. */
const LARGE_BYTES = 4e6;

export class LogDownload {
  private readonly label = element("span", {}, "Download");
  readonly button = element("button", { class: "tfos-button", type: "button" }, icon("save"), this.label);
  readonly note = element("div", { class: "tfos-notice tfos-save-note", role: "note" });
  private download: Download | null = null;

  /** `id` is unique in the page; `nodes` returns those whose files are to be saved. */
  constructor(
    private readonly store: Store,
    private readonly model: Model,
    private readonly id: string,
    private readonly nodes: () => string[],
    private readonly wholeFile: () => string,
  ) {
    this.note.hidden = true;
    this.button.addEventListener("click", () => void this.save());
  }

  close(): void {
    this.download?.cancel();
  }

  /** Saves the whole files; pressed again, it cancels. */
  private async save(): Promise<void> {
    if (this.download) {
      this.download.cancel();
      return;
    }
    const nodes = this.nodes();
    const name = `${fileName([this.store.view.name, ...(nodes.length === 1 ? nodes : [])].join("-"))}.log`;
    const page = `${this.id}-${Math.random()}`;
    const showProgress = (done: number, whole: number) => this.showProgress(done, whole);
    const download = new Download(this.model, page, nodes, showProgress, this.store.kernelAnswers);
    this.download = download;
    this.store.downloads.add(download);
    this.showNote("");
    setText(this.label, "Downloading…");
    const file = await download.run();
    this.store.downloads.delete(download);
    this.download = null;
    setText(this.label, "Download");
    if (file) saveAs(file, name);
    else if (!download.cancelled) this.saveKept(nodes, name);
  }

  private showProgress(done: number, whole: number): void {
    if (whole > LARGE_BYTES) setText(this.label, `${formatBytes(done)} of ${formatBytes(whole)}, press to cancel`);
  }

  /** Saves what this page holds, where the kernel is busy and does not answer. */
  private saveKept(nodes: string[], name: string): void {
    const chunks = this.store.chunks.filter((chunk) => nodes.includes(chunk.node));
    const parts = chunks.map(({ node, runs }) => {
      const text = textOf(runs);
      return nodes.length > 1 ? text.replace(/^(?=.)/gm, `[${node}] `) : text;
    });
    saveAs(new Blob(parts, { type: "text/plain" }), name);
    this.showNote(`The kernel is busy: the file holds only what this page keeps; ${this.wholeFile()}.`);
  }

  private showNote(text: string): void {
    this.note.hidden = !text;
    setText(this.note, text);
  }
}
