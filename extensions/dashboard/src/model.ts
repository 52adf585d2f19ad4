// What the dashboard uses of anywidget's model, and of the JupyterLab objects behind it. Other front ends have no such
// objects, so everything below the widget manager is optional.

import type { KernelMessage, PageMessage, Traits } from "./messages";

export interface Model {
  get<Name extends keyof Traits>(name: Name): Traits[Name];
  send(message: KernelMessage): void;
  on(name: `change:${keyof Traits}`, callback: () => void): void;
  on(name: "msg:custom", callback: (message: PageMessage) => void): void;
  off(name: `change:${keyof Traits}`, callback: () => void): void;
  off(name: "msg:custom", callback: (message: PageMessage) => void): void;
  readonly widget_manager?: WidgetManager;
}

export interface WidgetManager {
  readonly kernel?: { readonly id: string };
  readonly context?: {
    readonly sessionContext?: SessionContext;
    readonly model?: { readonly cells?: Iterable<NotebookCell> };
  };
}

export interface SessionContext {
  readonly statusChanged: Signal<string>;
  readonly kernelChanged: Signal<KernelChange>;
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
    get(index: number): NotebookOutput;
    set(index: number, output: object): void;
  };
  readonly sharedModel?: {
    updateOutputs?(start: number, end: number, outputs: object[], origin: string): void;
  };
}

export interface NotebookOutput {
  readonly data?: Record<string, unknown>;
  readonly metadata?: Record<string, unknown>;
}
