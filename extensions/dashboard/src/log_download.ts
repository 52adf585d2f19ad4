// The Download button of the logs: the whole files, from the Jupyter server; or else what this page holds, with a note.

import { element, icon, setText } from "./dom";
import { textOf } from "./log_lines";
import { serverUrl } from "./page";
import type { Store } from "./store";

export class LogDownload {
  private readonly label = element("span", {}, "Download");
  readonly button = element("button", { class: "tfos-button", type: "button" }, icon("save"), this.label);
  readonly note = element("div", { class: "tfos-notice tfos-save-note", role: "note", hidden: true });

  /** `nodes` returns those whose files are to be saved, and `wholeFile` says where these are. */
  constructor(
    private readonly store: Store,
    private readonly nodes: () => string[],
    private readonly wholeFile: () => string,
  ) {
    this.button.addEventListener("click", () => void this.save());
  }

  private async save(): Promise<void> {
    const nodes = this.nodes();
    const name = [this.store.view.name, ...(nodes.length === 1 ? nodes : [])].join("-");
    this.button.disabled = true;
    setText(this.label, "Downloading…");
    const files = await this.fetchFiles(nodes).catch(() => null);
    this.button.disabled = false;
    setText(this.label, "Download");
    this.note.hidden = files !== null;
    if (!files) setText(this.note, `The file holds only what this page keeps; ${this.wholeFile()}.`);
    saveAs(new Blob(files ?? this.keptText(nodes), { type: "text/plain" }), `${name.replace(/[^\w.-]+/g, "-")}.log`);
  }

  /** The whole files, each of several below a line with its node. */
  private async fetchFiles(nodes: string[]): Promise<BlobPart[]> {
    const files = await Promise.all(nodes.map((node) => this.fetchFile(node)));
    return nodes.length === 1 ? files : files.flatMap((file, index) => [`==> ${nodes[index]} <==\n`, file, "\n"]);
  }

  private async fetchFile(node: string): Promise<Blob> {
    const path = this.store.view.rows.find((row) => row.node === node)?.log;
    const url = path && serverUrl(`files/${path}`);
    if (!url) throw new Error(`the server does not serve the log of ${node}`);
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.blob();
  }

  private keptText(nodes: string[]): BlobPart[] {
    const chunks = this.store.chunks.filter((chunk) => nodes.includes(chunk.node));
    return chunks.map(({ node, runs }) => {
      const text = textOf(runs);
      return nodes.length > 1 ? text.replace(/^(?=.)/gm, `[${node}] `) : text;
    });
  }
}

/** Lets the browser save a file. */
function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
