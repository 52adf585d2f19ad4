// Whole files, piece by piece.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Download, fileName } from "../../extensions/dashboard/src/download";

/** A kernel that answers with pieces of these files. */
function kernel(files, pieceBytes = 4) {
  const sent = [];
  const model = { send: (content) => { sent.push(content); queueMicrotask(() => answer(content)); } };
  const target = { download: null, grows: 0 };
  const answer = ({ page, node, offset }) => {
    const bytes = new TextEncoder().encode(files[node] + "+".repeat(target.grows));
    const piece = bytes.slice(offset, offset + pieceBytes);
    target.grows += target.growing ? 3 : 0;
    target.download?.onPiece({ page, node, offset, size: bytes.length }, [new DataView(piece.buffer)]);
  };
  return { sent, model, target };
}

test("the pieces of one file make it up", async () => {
  const { model, target } = kernel({ "chief:0": "hello wörld" });
  const progress = [];
  target.download = new Download(model, "p", ["chief:0"], (done, whole) => progress.push([done, whole]));
  const file = await target.download.run();
  assert.equal(await file.text(), "hello wörld");
  assert.deepEqual(progress, [[4, 12], [8, 12], [12, 12]]);
});

test("several files come as one, with their names", async () => {
  const { model, target } = kernel({ "chief:0": "a", "worker:0": "", "worker:1": "c\n" });
  target.download = new Download(model, "p", ["chief:0", "worker:0", "worker:1"], () => {});
  const text = await (await target.download.run()).text();
  assert.equal(text, "==> chief:0 <==\na\n==> worker:0 <==\n\n==> worker:1 <==\nc\n");
});

test("of a growing file, what was there at the beginning comes", async () => {
  const { model, target } = kernel({ "chief:0": "hello" });
  target.growing = true;
  target.download = new Download(model, "p", ["chief:0"], () => {});
  assert.equal(await (await target.download.run()).text(), "hello");
});

test("answers to others are left alone, and cancelling ends it", async () => {
  const { model, target, sent } = kernel({ "chief:0": "hello" });
  const download = new Download(model, "p", ["chief:0"], () => {});
  const file = download.run();
  download.onPiece({ page: "q", node: "chief:0", offset: 0, size: 5 }, [new DataView(new ArrayBuffer(4))]);
  download.onPiece({ page: "p", node: "chief:0", offset: 4, size: 5 }, [new DataView(new ArrayBuffer(4))]);
  assert.equal(download.offset, 0);
  download.cancel();
  assert.equal(await file, null);
  assert.equal(sent.length, 1);
  assert.equal(target.download, null);
});

test("names are fit for files", () => {
  assert.equal(fileName("my run/worker:0"), "my-run-worker-0");
});
