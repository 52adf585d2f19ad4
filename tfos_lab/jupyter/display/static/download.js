// Whole log files, fetched from the kernel piece by piece. A kernel that cannot hear us (older ipykernel, busy cell)
// leaves what the page holds, and says where the file is.

/** The first answer comes within this time, or not while the cell blocks. */
const PATIENCE_MS = 5000;

export class Download {
  /**
   * @param {Model} model
   * @param {string} page
   * @param {string[]} nodes
   * @param {(done: number, whole: number) => void} progressed in bytes, of the file that comes now
   */
  constructor(model, page, nodes, progressed) {
    this.model = model;
    this.page = page;
    this.nodes = [...nodes];
    this.progressed = progressed;
    /** @type {BlobPart[]} */
    this.parts = [];
    this.node = "";
    this.offset = 0;
    /** @type {number | undefined} */
    this.size = undefined;
    this.cancelled = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {(blob: Blob | null) => void} */
    this.settle = () => {};
  }

  /** @returns {Promise<Blob | null>} the whole files, or null where the kernel does not answer */
  run() {
    return new Promise((resolve) => {
      this.settle = resolve;
      this.nextNode();
    });
  }

  nextNode() {
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

  ask() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.finish(null), PATIENCE_MS);
    this.model.send({ kind: "fetch", page: this.page, node: this.node, offset: this.offset });
  }

  /**
   * A piece has come.
   * @param {{page: string, node: string, offset: number, size: number}} message
   * @param {DataView[]} buffers
   */
  take({ page, node, offset, size }, buffers) {
    if (this.cancelled || page !== this.page || node !== this.node || offset !== this.offset) return;
    // The file may grow all the time: what is there at the beginning is what comes.
    this.size ??= size;
    const [piece] = buffers;
    const length = Math.min(piece?.byteLength ?? 0, this.size - offset);
    if (piece && length > 0) {
      this.parts.push(new Blob([new Uint8Array(piece.buffer, piece.byteOffset, length)]));
      this.offset += length;
    }
    this.progressed(this.offset, this.size);
    if (length > 0 && this.offset < this.size) this.ask();
    else this.nextNode();
  }

  cancel() {
    this.cancelled = true;
    this.finish(null);
  }

  /** @param {Blob | null} blob */
  finish(blob) {
    clearTimeout(this.timer);
    this.settle(blob);
  }
}

/**
 * Hands a file to the browser, which saves it.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveAs(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/**
 * @param {string} name
 * @returns {string} the same as part of a file's name
 */
export function fileName(name) {
  return name.replace(/[^\w.-]+/g, "-");
}
