// Fetches whole log files from the kernel, piece by piece. A kernel that does not answer (older ipykernel, busy cell)
// leaves what the page holds, and the place where the file is.

import type { FileMessage } from "./messages";
import type { Model } from "./model";
import type { FileReceiver } from "./store";

/** A kernel that has never answered by then will not while the cell blocks; one that has may be slow. */
const FIRST_ANSWER_MS = 5000;
const ANSWER_MS = 60_000;

export class Download implements FileReceiver {
  cancelled = false;
  offset = 0;
  private readonly nodes: string[];
  private readonly parts: BlobPart[] = [];
  private node = "";
  private size: number | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private settle: (blob: Blob | null) => void = () => {};

  /**
   * `onProgress` gets bytes, of the file that comes now; `page` marks the answers to this download; `answers` says
   * whether the kernel is known to answer while the cell blocks.
   */
  constructor(
    private readonly model: Pick<Model, "send">,
    private readonly page: string,
    nodes: readonly string[],
    private readonly onProgress: (done: number, whole: number) => void,
    private answers = false,
  ) {
    this.nodes = [...nodes];
  }

  /** Returns the whole files as one, or null where the kernel does not answer. */
  run(): Promise<Blob | null> {
    return new Promise((resolve) => {
      this.settle = resolve;
      this.nextNode();
    });
  }

  onPiece({ page, node, offset, size }: FileMessage, buffers: DataView[]): void {
    if (this.cancelled || page !== this.page || node !== this.node || offset !== this.offset) return;
    this.answers = true;
    // The file may grow all the time: what was there at the beginning is fetched.
    this.size ??= size;
    const [piece] = buffers;
    const length = Math.min(piece?.byteLength ?? 0, this.size - offset);
    if (piece && length > 0) {
      this.parts.push(new Blob([new Uint8Array(piece.buffer as ArrayBuffer, piece.byteOffset, length)]));
      this.offset += length;
    }
    this.onProgress(this.offset, this.size);
    if (length > 0 && this.offset < this.size) this.ask();
    else this.nextNode();
  }

  cancel(): void {
    this.cancelled = true;
    this.finish(null);
  }

  private nextNode(): void {
    const node = this.nodes.shift();
    if (node === undefined) {
      this.finish(new Blob(this.parts, { type: "text/plain" }));
      return;
    }
    if (this.nodes.length || this.node) this.parts.push(`${this.node ? "\n" : ""}==> ${node} <==\n`);
    this.node = node;
    this.offset = 0;
    this.size = undefined;
    this.ask();
  }

  private ask(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.finish(null), this.answers ? ANSWER_MS : FIRST_ANSWER_MS);
    this.model.send({ kind: "fetch", page: this.page, node: this.node, offset: this.offset });
  }

  private finish(blob: Blob | null): void {
    clearTimeout(this.timer);
    this.settle(blob);
  }
}

/** Lets the browser save a file. */
export function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A name as part of a file's name. */
export function fileName(name: string): string {
  return name.replace(/[^\w.-]+/g, "-");
}
