// Where the seconds went: a bar with one span for each phase, a track below for each feed, and a legend that says it.

import { element, setText } from "./dom.js";
import { formatSeconds } from "./format.js";

export class Timeline {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.shown = "";
    this.bar = element("div", { class: "tfos-timeline", "aria-hidden": "true" });
    this.legend = element("div", { class: "tfos-phases" });
    this.el = element("div", {}, this.bar, this.legend);
  }

  update() {
    const { spans } = this.store.view;
    const names = spans.map((span) => span.name).join();
    if (names !== this.shown) {
      this.shown = names;
      this.bar.replaceChildren(
        ...spans.map(({ name, kind, track }) => {
          const bar = element("span", { class: "tfos-span", "data-span": kind, title: name });
          if (track) bar.style.setProperty("--tfos-track", String(track));
          return bar;
        }),
      );
      this.bar.style.setProperty("--tfos-tracks", String(Math.max(0, ...spans.map(({ track }) => track))));
      this.legend.replaceChildren(...spans.map(({ kind }) => element("span", { "data-span": kind })));
    }
    this.el.hidden = !spans.length;
    this.tick();
  }

  /** Once a second: what goes on takes longer. */
  tick() {
    const { spans, started_s, ended_s } = this.store.view;
    const now = (ended_s ?? this.store.nowS()) - started_s;
    const ends = spans.map((span) => span.end_s ?? Math.max(span.start_s, now));
    const whole = Math.max(...ends, 0.001);
    spans.forEach((span, index) => {
      const seconds = /** @type {number} */ (ends[index]) - span.start_s;
      const bar = /** @type {HTMLElement} */ (this.bar.children[index]);
      bar.style.left = `${((100 * span.start_s) / whole).toFixed(2)}%`;
      bar.style.width = `${((100 * seconds) / whole).toFixed(2)}%`;
      const text = span.end_s === null ? `${span.name} …` : `${span.name} ${formatSeconds(seconds)}`;
      setText(/** @type {Element} */ (this.legend.children[index]), text);
    });
  }
}
