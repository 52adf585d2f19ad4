// The picture in the notebook's document: it follows the run while the page shows the dashboard.

import assert from "node:assert/strict";
import { test } from "node:test";

import { keepPicture, replaceOutput } from "../../extensions/dashboard/src/picture";

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
const bundle = { "text/html": "<p>picture</p>", "text/plain": "picture" };
const metadata = { tfos_lab: { display: "d1" } };
const ours = (data) => ({ output_type: "display_data", data, metadata });

/** A notebook of one cell, as JupyterLab has it: what is shown, and the document that is saved. */
function notebook(...outputs) {
  const [shown, document] = [[...outputs], [...outputs]];
  const sharedModel = {
    updateOutputs: (start, end, values, origin) => {
      assert.equal(origin, "silent-change", "the page must not draw anew");
      document.splice(start, end - start, ...values);
    },
  };
  const list = {
    get length() {
      return shown.length;
    },
    get: (index) => shown[index],
    set: (index, value) => {
      shown[index] = document[index] = value;
    },
  };
  const cells = [{ outputs: list, sharedModel }];
  const model = { get: (name) => ({ display_key: "d1" })[name], widget_manager: { context: { model: { cells } } } };
  return { model, shown, document, cells };
}

const widget = { output_type: "display_data", data: { [WIDGET_VIEW]: { model_id: "m1" } }, metadata: {} };
const stranger = { output_type: "display_data", data: { "text/plain": "x" }, metadata: {} };

test("the page keeps the dashboard, the document gets the picture", () => {
  const { model, shown, document } = notebook(stranger, widget);
  keepPicture(model, "m1", bundle);
  assert.deepEqual(shown, [stranger, widget]);
  assert.deepEqual(document, [stranger, ours(bundle)]);
});

test("a page that was loaded again puts the dashboard in place of the picture", () => {
  const { model, shown, document } = notebook(ours({ "text/html": "older" }), stranger);
  keepPicture(model, "m1", bundle);
  assert.equal(shown[0].data[WIDGET_VIEW].model_id, "m1");
  assert.deepEqual(document, [ours(bundle), stranger]);
});

test("at the end the picture is in both", () => {
  const { model, shown, document } = notebook(widget, ours({ "text/html": "of a copy of the cell" }));
  replaceOutput(model, "m1", bundle);
  assert.deepEqual(shown, [ours(bundle), ours(bundle)]);
  assert.deepEqual(document, shown);
});

test("where a front end has no such document nothing is done", () => {
  const { model, shown, cells } = notebook(widget);
  delete cells[0].sharedModel;
  keepPicture(model, "m1", bundle);
  keepPicture({ get: () => "d1" }, "m1", bundle);
  assert.deepEqual(shown, [widget]);
});
