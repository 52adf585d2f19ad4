// What kernel and page exchange, and what the dashboard uses of anywidget's model and of the JupyterLab objects behind it.
// `tfos_lab/notebook/display/dashboard.py` is the other side, and says what the messages are for. Front ends other than
// JupyterLab have no such objects, so everything below the widget manager is optional.

/** MIME type → content, as in a notebook's output. */
export type Bundle = Record<string, string>;

/** Finished lines of one node, as Python has drawn and escaped them; no element goes over the end of a line. `note` names what was dropped before them. */
export interface Chunk {
  node: string;
  html: string;
  lines: number;
  note: string;
}

/** `open` has the unfinished line of each node. */
export interface LogBatch {
  seq: number;
  chunks: Chunk[];
  open: Record<string, string>;
}

/** All remembered log text; `forgotten` has how many lines of each node are not remembered. */
export interface LogHistory extends LogBatch {
  forgotten: Record<string, number>;
}

export type PageMessage =
  | ({ kind: "log" } & LogBatch)
  | ({ kind: "history" } & LogHistory)
  | { kind: "picture" | "end"; model: string; bundle: Bundle };

export type KernelMessage = { kind: "hello" | "stop" } | { kind: "stacks"; node: string };

/** What the page goes by beside the parts of the card; `hues` are the colours of the nodes that have a row. */
export interface View {
  id: string;
  name: string;
  state: string;
  ended: boolean;
  run_dir: string;
  hues: Record<string, number>;
}

/** The widget's traits; those before `view` are parts of the card as HTML. */
export interface Traits {
  head: string;
  course: string;
  nodes: string;
  charts: string;
  shown: string;
  stacks: string;
  tabs: string;
  view: View;
  display_key: string;
  blocking: boolean;
}

export interface Model {
  get<Name extends keyof Traits>(name: Name): Traits[Name];
  send(message: KernelMessage): void;
  on(name: "change", callback: () => void): void;
  on(name: "msg:custom", callback: (message: PageMessage) => void): void;
  off(name: "change", callback: () => void): void;
  off(name: "msg:custom", callback: (message: PageMessage) => void): void;
  readonly widget_manager?: {
    readonly kernel?: { interrupt(): Promise<void> } | null;
    readonly context?: {
      readonly sessionContext?: {
        readonly statusChanged: Signal<string>;
        readonly kernelChanged: Signal<KernelChange>;
      };
      readonly model?: { readonly cells?: Iterable<NotebookCell> };
    };
  };
}

export interface KernelChange {
  readonly oldValue: { readonly id: string } | null;
  readonly newValue: { readonly id: string } | null;
}

export interface Signal<Value> {
  connect(slot: (sender: unknown, value: Value) => void): unknown;
  disconnect(slot: (sender: unknown, value: Value) => void): unknown;
}

export interface NotebookCell {
  readonly outputs?: {
    readonly length: number;
    get(index: number): { readonly data?: Record<string, unknown>; readonly metadata?: Record<string, unknown> };
    set(index: number, output: object): void;
  };
  readonly sharedModel?: {
    updateOutputs?(start: number, end: number, outputs: object[], origin: string): void;
  };
}
