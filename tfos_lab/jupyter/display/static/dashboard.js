// Entry of the live dashboard: joins the model (kernel side) with a store, and each view with its parts.
//
// The state of the cluster is the trait `view`, so that a page that comes later has it at once. Log text comes as
// custom messages, which are never saved into the notebook.

import { Charts } from "./charts.js";
import { element, setAttribute } from "./dom.js";
import { formatClock } from "./format.js";
import { Header } from "./header.js";
import { watchKernel } from "./kernel_watch.js";
import { LogTabs } from "./logs.js";
import { keepPicture, lostPicture, replaceOutput } from "./picture.js";
import { Store } from "./store.js";
import { NodeTable } from "./table.js";

/**
 * @typedef {{get: (name: string) => any, send: (content: unknown) => void,
 *   on: (name: string, callback: Function) => void, off: (name: string, callback: Function) => void,
 *   widget_manager?: any}} Model
 */

/** @type {Map<string, Store>} one store for all views of a display */
const stores = new Map();
let viewCount = 0;

/** @param {{model: Model}} context */
function initialize({ model }) {
  const store = new Store(model.get("view"));
  const key = model.get("display_key");
  const page = Math.random().toString(36).slice(2);
  const viewChanged = () => store.setView(model.get("view"));
  /** @type {{model: string, bundle: Record<string, string>} | null} */
  let picture = null;
  const messageCame = (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
    store.heard();
    if (message?.kind === "log") store.addLogs(message);
    else if (message?.kind === "metrics") store.addMetrics(message);
    else if (message?.kind === "file") store.takeFile(message, buffers);
    else if (message?.kind === "history" && isForUs(message, page, store)) store.replaceLogs(message);
    else if (message?.kind === "picture") {
      picture = message;
      keepPicture(model, message.model, message.bundle);
    } else if (message?.kind === "end") {
      replaceOutput(model, message.model, message.bundle);
      store.forgetLogs();
    }
  };
  const kernelLost = (/** @type {string} */ happened) => {
    if (!store.lose(`The kernel ${happened} at ${formatClock(new Date())}.`)) return;
    if (picture) keepPicture(model, picture.model, lostPicture(picture.bundle, store.view.reason));
  };
  const endWatch = watchKernel(model, kernelLost);
  model.on("change:view", viewChanged);
  model.on("msg:custom", messageCame);
  stores.set(key, store);
  model.send({ kind: "hello", page });
  return () => {
    endWatch();
    model.off("change:view", viewChanged);
    model.off("msg:custom", messageCame);
    stores.delete(key);
  };
}

/**
 * History comes as the answer to our hello, or unasked for where the kernel could not hear us: then it is of use only
 * to a page that missed the beginning.
 * @param {{page: string}} message
 * @param {string} page
 * @param {Store} store
 */
function isForUs(message, page, store) {
  return message.page === page || (message.page === "" && store.firstSeq !== 1);
}

/** @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const store = /** @type {Store} */ (stores.get(model.get("display_key")));
  viewCount += 1;
  const header = new Header(store, model);
  const charts = new Charts(store);
  const logs = new LogTabs(store, model, `tfos-${model.get("display_key")}-${viewCount}`);
  const table = new NodeTable(store, (node) => logs.select(node));
  // Jupyter's one-letter shortcuts (and its arrow keys) must not act on the cell while focus is in here.
  const root = element("div", { class: "tfos tfos-live", "data-lm-suppress-shortcuts": "true" });
  root.append(header.el, table.el, charts.el, logs.el);
  const listener = {
    viewChanged: () => {
      setAttribute(root, "data-state", store.view.state);
      header.update();
      table.update();
      logs.update();
    },
    metricsChanged: () => charts.update(),
    logsAdded: (/** @type {Chunk[]} */ chunks) => logs.add(chunks),
    logsReplaced: () => logs.redraw(),
  };
  store.listeners.add(listener);
  listener.viewChanged();
  charts.update();
  const clock = setInterval(() => {
    header.tick();
    table.tick();
  }, 1000);
  el.append(root);
  return () => {
    clearInterval(clock);
    store.listeners.delete(listener);
    header.close();
    charts.close();
    logs.close();
    root.remove();
  };
}

export default { initialize, render };
