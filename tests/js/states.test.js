// Every state of Python's table is drawn with its own shape and word, by the node table.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StateCell } from "../../extensions/dashboard/src/cells";
import { NODE_STATES } from "../../extensions/dashboard/src/states";

/** As much of an element as drawing a state takes. */
class FakeElement {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
}

globalThis.document = {
  createElement: (tag) => new FakeElement(tag),
  createElementNS: (_, tag) => new FakeElement(tag),
};

const drawingOf = (icon) => JSON.stringify(icon.children);

function drawnInTable(state) {
  const cell = new FakeElement("td");
  cell.parentElement = new FakeElement("tr");
  new StateCell(cell).update({ node: "chief:0", state, detail: "", hung: "" });
  assert.equal(cell.parentElement.getAttribute("data-state"), state);
  const [word] = cell.children;
  assert.equal(word.getAttribute("data-state"), state);
  return { drawing: drawingOf(word.children[0]), text: word.children[1] };
}

for (const [state, { shape }] of Object.entries(NODE_STATES)) {
  test(`a node that is ${state}`, () => {
    const { drawing, text } = drawnInTable(state);
    assert.equal(text, state);
    assert.notEqual(drawing, "[]", "its shape is drawn");
    for (const [other, traits] of Object.entries(NODE_STATES)) {
      assert.equal(drawnInTable(other).drawing === drawing, traits.shape === shape, `${state} and ${other}`);
    }
  });
}

test("a node that is stopping is not drawn as one that waits", () => {
  assert.notEqual(drawnInTable("stopping").drawing, drawnInTable("waiting").drawing);
});
