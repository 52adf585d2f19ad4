// Entry of the live dashboard, as anywidget loads it: joins the model with a store, and each view with its parts.
//
// The state of the cluster is the trait `view`, so that a page that loads later has it at once. Log text comes as
// custom messages, which are never saved into the notebook.

import { Card } from "./card";
import { formatClock } from "./dom";
import type { Bundle, Model, PageMessage } from "./model";
import { watchKernel } from "./page";
import { keepPicture, lostPicture, replaceOutput } from "./picture";
import { Store } from "./store";

/** One store for all views of a display, by its key. */
const stores = new Map<string, Store>();

function initialize({ model }: { model: Model }): () => void {
  const store = new Store(model.get("view"));
  const key = model.get("display_key");
  let picture: { model: string; bundle: Bundle } | null = null;

  const onChange = () => store.setView(model.get("view"));
  const onMessage = (message: PageMessage) => {
    store.onMessage();
    switch (message?.kind) {
      case "log":
        return store.addLogs(message);
      case "history":
        // It answers somebody's hello, or comes where the kernel could not receive any.
        if (store.firstSeq !== 1) store.replaceLogs(message);
        return;
      case "picture":
        picture = message;
        return keepPicture(model, message.model, message.bundle);
      case "end":
        replaceOutput(model, message.model, message.bundle);
        return store.dropLogs();
    }
  };
  const onKernelLost = (happened: string) => {
    if (!store.lose(`The kernel ${happened} at ${formatClock(new Date())}.`) || !picture) return;
    keepPicture(model, picture.model, lostPicture(picture.bundle, store.lostReason));
  };

  const endWatch = watchKernel(model, onKernelLost);
  model.on("change", onChange);
  model.on("msg:custom", onMessage);
  stores.set(key, store);
  model.send({ kind: "hello" });
  return () => {
    endWatch();
    model.off("change", onChange);
    model.off("msg:custom", onMessage);
    stores.delete(key);
  };
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const store = stores.get(model.get("display_key")) as Store;
  const card = new Card(store, model);
  store.cards.add(card);
  el.append(card.el);
  return () => {
    store.cards.delete(card);
    card.close();
  };
}

export default { initialize, render };
