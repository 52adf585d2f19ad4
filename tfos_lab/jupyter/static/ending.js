// The end: the static picture takes the dashboard's place in the notebook itself.
//
// The kernel replaces the output by its display id, but a page that was loaded again has lost that id. Such a page finds
// the output by the widget that stands in it, and puts the picture there, so that the notebook is saved with it.

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";

/**
 * @param {Model} model
 * @param {string} modelId
 * @param {Record<string, string>} bundle
 */
export function replaceOutput(model, modelId, bundle) {
  const cells = model.widget_manager?.context?.model?.cells ?? [];
  for (const cell of cells) {
    const outputs = cell.outputs;
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      if (outputs.get(index).data?.[WIDGET_VIEW]?.model_id !== modelId) continue;
      outputs.set(index, { output_type: "display_data", data: bundle, metadata: {} });
    }
  }
}
