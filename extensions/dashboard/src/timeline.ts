// Where the seconds went: a bar with one span for each phase, a track below for each feed, and a legend with the times.

import { element, setText } from "./dom";
import { formatSeconds } from "./format";
import type { Store } from "./store";

export class Timeline {
  private readonly bar = element("div", { class: "tfos-timeline", "aria-hidden": "true" });
  private readonly legend = element("div", { class: "tfos-phases" });
  readonly el = element("div", {}, this.bar, this.legend);
  private shown = "";

  constructor(private readonly store: Store) {}

  update(): void {
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
  tick(): void {
    const { spans, started_s, ended_s } = this.store.view;
    const now = (ended_s ?? this.store.nowS()) - started_s;
    const timed = spans.map((span) => ({ ...span, end: span.end_s ?? Math.max(span.start_s, now) }));
    const whole = Math.max(...timed.map(({ end }) => end), 0.001);
    timed.forEach(({ name, start_s, end_s, end }, index) => {
      const bar = this.bar.children[index] as HTMLElement;
      bar.style.left = `${((100 * start_s) / whole).toFixed(2)}%`;
      bar.style.width = `${((100 * (end - start_s)) / whole).toFixed(2)}%`;
      const text = end_s === null ? `${name} …` : `${name} ${formatSeconds(end - start_s)}`;
      setText(this.legend.children[index] as Element, text);
    });
  }
}
