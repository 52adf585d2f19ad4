// Line charts of what nodes report, one for each metric and one line for each node; a pointer shows the values.

import { element, setAttribute, setText, svgElement } from "./dom.js";
import { formatMetric, formatSeconds } from "./format.js";
import { PLOT, byWeight, formatTick, nearest, pathOf, placesOf, scaleOf, stepsGoOn, thin } from "./plot.js";

const MAX_LINES = 64;
const MAX_TOLD = 12;

export class Charts {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.frame = 0;
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    this.grid = element("div", { class: "tfos-charts" });
    this.el = element("details", { class: "tfos-metrics", open: true }, element("summary", {}, "Metrics"), this.grid);
    this.el.addEventListener("toggle", () => this.update());
    this.el.hidden = true;
  }

  /** Draws at the next frame what has changed; nothing while it is folded away. */
  update() {
    this.el.hidden = this.store.series.size === 0;
    if (this.el.open) this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    for (const [metric, lines] of this.store.series) {
      let chart = this.charts.get(metric);
      if (!chart) {
        chart = new Chart(metric, (node) => this.store.placeOf(node));
        this.charts.set(metric, chart);
        const ordered = byWeight(this.charts.keys()).flatMap((name) => this.charts.get(name)?.el ?? []);
        this.grid.replaceChildren(...ordered);
      }
      chart.update(lines);
    }
  }

  close() {
    cancelAnimationFrame(this.frame);
  }
}

class Chart {
  /**
   * @param {string} metric
   * @param {(node: string) => number} placeOf
   */
  constructor(metric, placeOf) {
    this.metric = metric;
    this.placeOf = placeOf;
    this.shownVersion = -1;
    this.byStep = true;
    /** @type {Map<string, Place[]>} */
    this.places = new Map();
    /** @type {number | null} where the reader points at, on the x axis */
    this.at = null;
    this.across = scaleOf([], PLOT.left, PLOT.width - PLOT.right);
    this.up = scaleOf([], PLOT.height - PLOT.bottom, PLOT.top);
    this.range = element("span", { class: "tfos-facts" });
    this.axes = svgElement("g");
    this.lines = svgElement("g");
    this.rule = svgElement("g", { class: "tfos-rule" });
    this.svg = svgElement("svg", {
      viewBox: `0 0 ${PLOT.width} ${PLOT.height}`,
      role: "img",
      tabindex: "0",
      "aria-label": metric,
    });
    this.svg.append(this.axes, this.lines, this.rule);
    this.tip = element("div", { class: "tfos-tip" });
    this.tip.hidden = true;
    this.el = element(
      "figure",
      { class: "tfos-chart" },
      element("figcaption", {}, element("b", {}, metric), " ", this.range),
      this.svg,
      this.tip,
    );
    this.svg.addEventListener("pointermove", (event) => this.pointAt(event.clientX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.moveByKey(event));
  }

  /** @param {{version: number, nodes: Map<string, Point[]>}} lines */
  update({ version, nodes }) {
    if (version === this.shownVersion) return;
    this.shownVersion = version;
    const drawn = [...nodes].sort(([one], [other]) => this.placeOf(one) - this.placeOf(other)).slice(0, MAX_LINES);
    this.byStep = stepsGoOn(drawn.map(([, points]) => points));
    this.places = new Map(drawn.map(([node, points]) => [node, placesOf(points, this.byStep)]));
    const all = [...this.places.values()].flat();
    this.across = scaleOf(all.map(({ x }) => x), PLOT.left, PLOT.width - PLOT.right);
    const heights = all.flatMap(({ y }) => (y === null ? [] : [y]));
    this.up = scaleOf(heights, PLOT.height - PLOT.bottom, PLOT.top);
    this.drawAxes();
    this.lines.replaceChildren(...[...this.places].flatMap(([node, places]) => this.drawLine(node, places)));
    this.tellLast();
    this.showTip();
  }

  drawAxes() {
    const { left, right, width, height } = PLOT;
    const parts = [];
    for (const value of this.up.ticks) {
      const y = this.up.place(value);
      parts.push(svgElement("path", { class: "tfos-grid", d: `M${left} ${y}H${width - right}` }));
      parts.push(tick(left - 5, y + 3, "end", formatTick(value)));
    }
    for (const value of this.across.ticks) {
      if (this.byStep && !Number.isInteger(value)) continue;
      parts.push(tick(this.across.place(value), height - 6, "middle", formatTick(value)));
    }
    parts.push(tick(left - 14, height - 6, "end", this.byStep ? "step" : "s"));
    this.axes.replaceChildren(...parts);
  }

  /**
   * @param {string} node
   * @param {Place[]} places
   */
  drawLine(node, places) {
    const line = svgElement("g", { class: `tfos-line tfos-hue${this.placeOf(node) % 7}` });
    const finite = places.filter(({ y }) => y !== null);
    const [first] = finite;
    if (first && finite.length === 1) {
      const [x, y] = [this.across.place(first.x), this.up.place(Number(first.y))];
      line.append(svgElement("circle", { cx: String(x), cy: String(y), r: "2.5" }));
    } else {
      line.append(svgElement("path", { d: pathOf(thin(places), this.across.place, this.up.place) }));
    }
    return finite.length ? [line] : [];
  }

  /** The newest values, beside the name and for screen readers. */
  tellLast() {
    const last = [...this.places].flatMap(([node, places]) => {
      const value = places.findLast(({ y }) => y !== null)?.y;
      return value == null ? [] : [{ node, value }];
    });
    const values = last.map(({ value }) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)].map(formatMetric);
    setText(this.range, !values.length ? "not finite" : low === high ? `${low}` : `${low} – ${high}`);
    const told = last.slice(0, 8).map(({ node, value }) => `${node} ${formatMetric(value)}`);
    setAttribute(this.svg, "aria-label", `${this.metric}: ${told.join(", ")}`);
  }

  /** @param {number} clientX */
  pointAt(clientX) {
    const box = this.svg.getBoundingClientRect();
    this.point(this.across.value(((clientX - box.left) / box.width) * PLOT.width));
  }

  /** @param {KeyboardEvent} event */
  moveByKey(event) {
    const all = [...this.places.values()].flat().map(({ x }) => x);
    const xs = [...new Set(all)].sort((one, other) => one - other);
    const at = this.at === null ? xs.length - 1 : xs.indexOf(this.nearestX() ?? NaN);
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: xs.length - 1, Escape: -2 };
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(to === -2 ? null : (xs[Math.min(xs.length - 1, Math.max(0, to))] ?? null));
  }

  nearestX() {
    const at = this.at ?? 0;
    const near = [...this.places.values()].flatMap((places) => nearest(places, at) ?? []);
    near.sort((one, other) => Math.abs(one.x - at) - Math.abs(other.x - at));
    return near[0]?.x;
  }

  /** @param {number | null} at */
  point(at) {
    this.at = at;
    this.showTip();
  }

  showTip() {
    const x = this.at === null ? undefined : this.nearestX();
    this.tip.hidden = x === undefined;
    if (x === undefined) {
      this.rule.replaceChildren();
      return;
    }
    const place = this.across.place(x);
    const marks = [svgElement("path", { d: `M${place} ${PLOT.top}V${PLOT.height - PLOT.bottom}` })];
    const title = element("div", { class: "tfos-facts" }, this.byStep ? `step ${formatTick(x)}` : formatSeconds(x));
    const rows = [];
    for (const [node, places] of this.places) {
      const near = nearest(places, x);
      if (!near) continue;
      const hue = `tfos-hue${this.placeOf(node) % 7}`;
      if (near.y !== null) {
        const [cx, cy] = [this.across.place(near.x), this.up.place(near.y)];
        marks.push(svgElement("circle", { class: hue, cx: String(cx), cy: String(cy), r: "3" }));
      }
      const value = near.y === null ? "not finite" : formatMetric(near.y);
      const mark = element("span", { class: `tfos-mark ${hue}` });
      rows.push(element("div", {}, element("span", {}, mark, node), element("b", {}, value)));
    }
    this.rule.replaceChildren(...marks);
    const more = rows.length > MAX_TOLD ? [element("div", { class: "tfos-facts" }, `${rows.length - MAX_TOLD} more`)] : [];
    this.tip.replaceChildren(title, ...rows.slice(0, MAX_TOLD), ...more);
    this.tip.style.left = `${(100 * place) / PLOT.width}%`;
    this.tip.classList.toggle("tfos-left", place > PLOT.width / 2);
  }
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} anchor
 * @param {string} text
 */
function tick(x, y, anchor, text) {
  const made = svgElement("text", { class: "tfos-tick", x: String(x), y: String(y), "text-anchor": anchor });
  made.append(text);
  return made;
}
