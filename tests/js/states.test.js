// Every state of Python's table is drawn with its own shape and word, by the header and by the node table.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StateCell } from "../../extensions/dashboard/src/cells";
import { Header } from "../../extensions/dashboard/src/header";
import { CLUSTER_STATES, NODE_STATES } from "../../extensions/dashboard/src/states";

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

function drawnInHeader(state) {
  const header = { shownState: "", state: new FakeElement("span"), announcer: {}, store: { view: { name: "mnist" } } };
  Header.prototype.updateState.call(header, state);
  const [icon, text] = header.state.children;
  return { drawing: drawingOf(icon), text };
}

for (const [where, states, draw] of [
  ["node", NODE_STATES, drawnInTable],
  ["cluster", CLUSTER_STATES, drawnInHeader],
]) {
  for (const [state, { shape }] of Object.entries(states)) {
    test(`a ${where} that is ${state}`, () => {
      const { drawing, text } = draw(state);
      assert.equal(text, state);
      assert.notEqual(drawing, "[]", "its shape is drawn");
      for (const [other, traits] of Object.entries(states)) {
        assert.equal(draw(other).drawing === drawing, traits.shape === shape, `${state} and ${other}`);
      }
    });
  }
}

test("a node that is stopping is not drawn as one that waits", () => {
  assert.notEqual(drawnInTable("stopping").drawing, drawnInTable("waiting").drawing);
});
