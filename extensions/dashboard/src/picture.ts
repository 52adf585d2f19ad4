// The static picture of a run in the notebook itself: what is saved, exported, and shown when the page is loaded again.
//
// While the page shows the dashboard, the document holds the picture in its place, and never the widget: a page that is
// loaded when the kernel is gone would find no model. A page that finds the kernel alive puts the dashboard back. At
// the end the kernel replaces its output by its display id, but a page that was loaded again has lost that id: it finds
// the output by its metadata.

import type { Bundle, Model, NotebookCell } from "./model";
import { asLost, parseParts } from "./morph";

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
/** Marks the change of the document as the dashboard's own: the page goes on showing the dashboard. */
const SILENT = "silent-change";
/** Where the notebook shows the run; `isLive` where the output is the widget itself. */
interface OutputPosition {
  readonly outputs: NonNullable<NotebookCell["outputs"]>;
  readonly sharedModel: NotebookCell["sharedModel"];
  readonly index: number;
  readonly isLive: boolean;
}

/** The run has ended: its picture replaces the dashboard. */
export function replaceOutput(model: Model, modelId: string, bundle: Bundle): void {
  for (const { outputs, index } of findOutputs(model, modelId)) outputs.set(index, makeOutput(model, bundle));
}

/** The run goes on: the document holds its picture, the page shows the dashboard. */
export function keepPicture(model: Model, modelId: string, bundle: Bundle): void {
  for (const { outputs, sharedModel, index, isLive } of findOutputs(model, modelId)) {
    if (!isLive) {
      const view = { version_major: 2, version_minor: 0, model_id: modelId };
      outputs.set(index, makeOutput(model, { ...bundle, [WIDGET_VIEW]: view }));
    }
    sharedModel?.updateOutputs?.(index, index + 1, [makeOutput(model, bundle)], SILENT);
  }
}

/** Returns the picture of a run as that of a lost one; `sentence` says how it was lost. */
export function lostPicture(bundle: Bundle, sentence: string): Bundle {
  const page = parseParts(bundle["text/html"] ?? "");
  for (const script of page.querySelectorAll("script")) script.remove();
  asLost(page);
  page.querySelector(".tfos-seen")?.prepend(`${sentence} `);
  return { ...bundle, "text/html": page.getHTML(), "text/plain": `${sentence}\n${bundle["text/plain"] ?? ""}` };
}

function findOutputs(model: Model, modelId: string): OutputPosition[] {
  const found: OutputPosition[] = [];
  for (const { outputs, sharedModel } of model.widget_manager?.context?.model?.cells ?? []) {
    for (let index = 0; outputs && index < outputs.length; index += 1) {
      const { data, metadata } = outputs.get(index);
      const isLive = field(data?.[WIDGET_VIEW], "model_id") === modelId;
      const isOurs = field(metadata?.["tfos_lab"], "display") === model.get("display_key");
      if (isLive || isOurs) found.push({ outputs, sharedModel, index, isLive });
    }
  }
  return found;
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

function makeOutput(model: Model, data: Record<string, unknown>): object {
  return { output_type: "display_data", data, metadata: { tfos_lab: { display: model.get("display_key") } } };
}
