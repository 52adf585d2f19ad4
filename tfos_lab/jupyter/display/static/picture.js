// The static picture of a run in the notebook itself: what is saved, exported and found when the page is loaded again.
//
// While the dashboard lives on the page, the document holds the picture in its place, and never the widget: a page that
// is loaded when the kernel has gone would find no model. A page that finds the kernel alive puts the dashboard back.
// The kernel replaces its output at the end by its display id, but a page that was loaded again has lost that id: it
// finds the output by its metadata.

import { CLUSTER_STATES, NODE_STATES } from "./states.js";

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
/** The dashboard's own change of the document: the page goes on showing the dashboard. */
const UNSEEN = "silent-change";
const GOING_ON = Object.entries({ ...CLUSTER_STATES, ...NODE_STATES }).flatMap(([state, { ended }]) => (ended ? [] : [state]));
const STATE = new RegExp(
  `<span class="tfos-state" data-state="(?:${GOING_ON.join("|")})"><span aria-hidden="true">[^<]*</span> [^<]*</span>`,
  "g",
);
const LOST = `<span class="tfos-state" data-state="lost"><span aria-hidden="true">${CLUSTER_STATES["lost"]?.sign}</span> lost</span>`;

/**
 * @typedef {Record<string, string>} Bundle
 * @typedef {{cell: any, index: number, isLive: boolean}} CellPlace where the run is shown in the notebook
 */

/**
 * @param {Model} model
 * @param {string} modelId
 * @returns {CellPlace[]}
 */
function outputsOf(model, modelId) {
  /** @type {CellPlace[]} */
  const places = [];
  for (const cell of model.widget_manager?.context?.model?.cells ?? []) {
    for (let index = 0; index < (cell.outputs?.length ?? 0); index += 1) {
      const output = cell.outputs.get(index);
      const isLive = output.data?.[WIDGET_VIEW]?.model_id === modelId;
      const isOurs = output.metadata?.tfos_lab?.display === model.get("display_key");
      if (isLive || isOurs) places.push({ cell, index, isLive });
    }
  }
  return places;
}

/**
 * The run has ended: its picture takes the dashboard's place.
 * @param {Model} model
 * @param {string} modelId
 * @param {Bundle} bundle
 */
export function replaceOutput(model, modelId, bundle) {
  for (const { cell, index } of outputsOf(model, modelId)) cell.outputs.set(index, outputOf(model, bundle));
}

/**
 * The run goes on: the document holds its picture, the page shows the dashboard.
 * @param {Model} model
 * @param {string} modelId
 * @param {Bundle} bundle
 */
export function keepPicture(model, modelId, bundle) {
  for (const { cell, index, isLive } of outputsOf(model, modelId)) {
    if (!isLive) {
      const view = { version_major: 2, version_minor: 0, model_id: modelId };
      cell.outputs.set(index, outputOf(model, { ...bundle, [WIDGET_VIEW]: view }));
    }
    cell.sharedModel?.updateOutputs?.(index, index + 1, [outputOf(model, bundle)], UNSEEN);
  }
}

/**
 * @param {Bundle} bundle of a run that goes on
 * @param {string} sentence how it was lost
 * @returns {Bundle}
 */
export function lostPicture(bundle, sentence) {
  const said = escapeText(sentence);
  const page = (bundle["text/html"] ?? "")
    .replace(/<script>.*?<\/script>/s, "")
    .replace(STATE, () => LOST)
    .replace('<span class="tfos-facts">', '<span class="tfos-facts">last seen with ')
    .replace(/(<div class="tfos-seen"[^>]*>)([^<]*)/, (_, tag, seen) => `${tag}${said} ${seen}`);
  return { ...bundle, "text/html": page, "text/plain": `${sentence}\n${bundle["text/plain"] ?? ""}` };
}

/**
 * @param {Model} model
 * @param {Record<string, unknown>} data
 */
function outputOf(model, data) {
  return { output_type: "display_data", data, metadata: { tfos_lab: { display: model.get("display_key") } } };
}

/** @param {string} text */
function escapeText(text) {
  return text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
}
