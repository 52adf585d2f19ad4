// What kernel and page exchange; `tfos_lab/notebook/display/dashboard.py` is the other side.

/** Text, and the classes of its style. */
export type Run = [text: string, classes: string];

/** MIME type → content, as in a notebook's output. */
export type Bundle = Record<string, string>;

/** Finished lines of one node; `note` names what was dropped before them. */
export interface Chunk {
  node: string;
  runs: Run[];
  lines: number;
  note: string;
}

interface LogBatch {
  seq: number;
  chunks: Chunk[];
  /** The unfinished line of each node. */
  open: Record<string, Run[]>;
}

/** New log text. */
export interface LogMessage extends LogBatch {
  kind: "log";
}

/** All remembered log text; `page` is the one that asked, or empty for all that missed the start. */
export interface HistoryMessage extends LogBatch {
  kind: "history";
  /** How many lines of each node are not remembered. */
  forgotten: Record<string, number>;
  page: string;
}

/** What the document holds in place of the widget `model` while the run goes on. */
export interface PictureMessage {
  kind: "picture";
  model: string;
  bundle: Bundle;
}

/** What replaces the widget `model`, as the run has ended. */
export interface EndMessage {
  kind: "end";
  model: string;
  bundle: Bundle;
}

export type PageMessage = LogMessage | HistoryMessage | PictureMessage | EndMessage;

export type KernelMessage =
  | { kind: "hello"; page: string }
  | { kind: "stop" }
  | { kind: "stacks"; node: string }
  | { kind: "open"; group: string; open: boolean }
  | { kind: "group_by"; grouping: string };

/**
 * One node that has a row. Its `place` stays when rows change their order: colours and tabs follow it. `log` is the path
 * of its log below the server's root, or empty where that does not serve it.
 */
export interface Row {
  node: string;
  place: number;
  log: string;
  state: string;
  ended: boolean;
}

/** What the page goes by beside the parts of the card; `hung` has the nodes that give no sign. */
export interface View {
  id: string;
  name: string;
  state: string;
  ended: boolean;
  spark_ui: string;
  tensorboard: boolean;
  run_dir: string;
  rows: Row[];
  hung: string[];
}

/** The widget's traits; those before `view` are parts of the card as HTML. */
export interface Traits {
  head: string;
  course: string;
  nodes: string;
  charts: string;
  shown: string;
  stacks: string;
  view: View;
  display_key: string;
  blocking: boolean;
  kernel_id: string;
}
