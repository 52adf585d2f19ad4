// Line charts of what nodes report, one for each metric with one line for each node; a pointer shows the values.

import { element, setAttribute, setText, svgElement } from "./dom";
import { formatMetric, formatSeconds } from "./format";
import { Legend } from "./legend";
import { drawMark, hueAt, lineAttributes, markAttributes } from "./marks";
import { PLOT, byWeight, dotsOf, formatTick, nearest, pathOf, scaleOf, stepsIncrease, thin, type Dot } from "./plot";
import { BANDS, type MetricLines, type Store } from "./store";

const MAX_LINES = 64;
/** Nodes in the tip beside the pointer, and in the label for screen readers. */
const MAX_IN_TIP = 12;
const MAX_IN_LABEL = 8;
/** From so many lines on, each is drawn thin and light, unless it is raised. */
const MANY_LINES = 17;
/** More charts scroll. */
const MANY_CHARTS = 7;

export class Charts {
  private readonly charts = new Map<string, Chart>();
  private readonly grid = element("div", { class: "tfos-charts" });
  private readonly legend: Legend;
  readonly el: HTMLDetailsElement;
  private frame = 0;

  constructor(private readonly store: Store) {
    this.legend = new Legend(store, () => this.raise());
    const title = element("summary", {}, "Metrics");
    this.el = element("details", { class: "tfos-metrics", open: true }, title, this.legend.el, this.grid);
    this.el.addEventListener("toggle", () => this.update());
    this.el.hidden = true;
  }

  /** Draws at the next frame what has changed; nothing while it is folded away. */
  update(): void {
    this.el.hidden = this.store.series.size === 0;
    if (this.el.open) this.frame ||= requestAnimationFrame(() => this.draw());
  }

  close(): void {
    cancelAnimationFrame(this.frame);
  }

  private draw(): void {
    this.frame = 0;
    const nodes = new Set<string>();
    for (const [metric, lines] of this.store.series) {
      this.chartOf(metric).update(lines);
      for (const node of lines.nodes.keys()) nodes.add(node);
    }
    this.legend.update(inPlace(nodes, (node) => this.store.placeOf(node)));
    this.grid.classList.toggle("tfos-many-lines", nodes.size >= MANY_LINES);
    this.grid.classList.toggle("tfos-many-charts", this.charts.size >= MANY_CHARTS);
  }

  private raise(): void {
    for (const chart of this.charts.values()) chart.raise();
  }

  private chartOf(metric: string): Chart {
    let chart = this.charts.get(metric);
    if (!chart) {
      chart = new Chart(
        metric,
        (node) => this.store.placeOf(node),
        (node) => this.legend.isRaised(node),
      );
      this.charts.set(metric, chart);
      this.grid.replaceChildren(...byWeight(this.charts.keys()).flatMap((name) => this.charts.get(name)?.el ?? []));
    }
    return chart;
  }
}

class Chart {
  private readonly range = element("span", { class: "tfos-facts" });
  private readonly axes = svgElement("g");
  private readonly lines = svgElement("g");
  private readonly rule = svgElement("g", { class: "tfos-rule" });
  private readonly svg = svgElement("svg", {
    viewBox: `0 0 ${PLOT.width} ${PLOT.height}`,
    role: "img",
    tabindex: "0",
  });
  private readonly tip = element("div", { class: "tfos-tip" });
  readonly el: HTMLElement;
  private shownVersion = -1;
  private byStep = true;
  private dots = new Map<string, Dot[]>();
  /** Where the reader points at, on the x axis. */
  private pointer: number | null = null;
  private xScale = scaleOf([], PLOT.left, PLOT.width - PLOT.right);
  private yScale = scaleOf([], PLOT.height - PLOT.bottom, PLOT.top);

  constructor(
    private readonly metric: string,
    private readonly placeOf: (node: string) => number,
    private readonly isRaised: (node: string) => boolean | null,
  ) {
    const caption = element("figcaption", {}, element("b", {}, metric), " ", this.range);
    this.el = element("figure", { class: "tfos-chart" }, caption, this.svg, this.tip);
    this.tip.hidden = true;
    this.svg.setAttribute("aria-label", metric);
    this.svg.append(this.axes, this.lines, this.rule);
    this.svg.addEventListener("pointermove", (event) => this.pointAtPixel(event.clientX));
    this.svg.addEventListener("pointerleave", () => this.pointAt(null));
    this.svg.addEventListener("blur", () => this.pointAt(null));
    this.svg.addEventListener("keydown", (event) => this.moveByKey(event));
  }

  update({ version, nodes }: MetricLines): void {
    if (version === this.shownVersion) return;
    this.shownVersion = version;
    const drawn = inPlace(nodes.keys(), this.placeOf).slice(0, MAX_LINES);
    const pointsOf = (node: string) => nodes.get(node) ?? [];
    this.byStep = stepsIncrease(drawn.map(pointsOf));
    this.dots = new Map(drawn.map((node) => [node, dotsOf(pointsOf(node), this.byStep)]));
    const all = [...this.dots.values()].flat();
    this.xScale = scaleOf(all.map(({ x }) => x), PLOT.left, PLOT.width - PLOT.right);
    const heights = all.flatMap(({ y }) => (y === null ? [] : [y]));
    this.yScale = scaleOf(heights, PLOT.height - PLOT.bottom, PLOT.top);
    this.drawAxes();
    this.lines.replaceChildren(
      ...this.drawBand(),
      ...[...this.dots].flatMap(([node, dots]) => this.drawLine(node, dots)),
    );
    this.raise();
    this.showNewest();
    this.showTip();
  }

  /** Draws the raised lines before the others, which fade. */
  raise(): void {
    const lines = [...this.lines.children];
    for (const line of lines) {
      const raised = this.isRaised(line.getAttribute("data-node") ?? "");
      line.classList.toggle("tfos-raised", raised === true);
      line.classList.toggle("tfos-faded", raised === false);
      if (raised) this.lines.append(line);
    }
    this.showTip();
  }

  private drawAxes(): void {
    const { left, right, width, height } = PLOT;
    const parts = [];
    for (const value of this.yScale.ticks) {
      const y = this.yScale.toPixel(value);
      parts.push(svgElement("path", { class: "tfos-grid", d: `M${left} ${y}H${width - right}` }));
      parts.push(tick(left - 5, y + 3, "end", formatTick(value)));
    }
    for (const value of this.xScale.ticks) {
      if (this.byStep && !Number.isInteger(value)) continue;
      parts.push(tick(this.xScale.toPixel(value), height - 6, "middle", formatTick(value)));
    }
    parts.push(tick(left - 14, height - 6, "end", this.byStep ? "step" : "s"));
    this.axes.replaceChildren(...parts);
  }

  /** Of a large cluster: where the values of all nodes lie. */
  private drawBand(): SVGElement[] {
    if ([...this.dots.keys()].join() !== BANDS.join()) return [];
    const [high, low] = ["max", "min"].map((band) => (this.dots.get(band) ?? []).filter(({ y }) => y !== null));
    if (!high?.length || !low?.length) return [];
    const around = pathOf([...thin(high), ...thin(low).reverse()], this.xScale.toPixel, this.yScale.toPixel);
    return [svgElement("path", { class: "tfos-band", d: `${around}Z` })];
  }

  /** A node's line, with its mark at the newest value. */
  private drawLine(node: string, dots: Dot[]): SVGElement[] {
    const place = this.placeOf(node);
    const line = svgElement("g", { class: `tfos-line tfos-hue${hueAt(place)}`, "data-node": node });
    const newest = dots.findLast(({ y }) => y !== null);
    if (!newest) return [];
    const path = pathOf(thin(dots), this.xScale.toPixel, this.yScale.toPixel);
    if (path.includes("L")) line.append(svgElement("path", lineAttributes(place, path)));
    line.append(drawMark(place, this.xScale.toPixel(newest.x), this.yScale.toPixel(Number(newest.y))));
    return [line];
  }

  /** The newest values, beside the name and for screen readers. */
  private showNewest(): void {
    const newest = [...this.dots].flatMap(([node, dots]) => {
      const value = dots.findLast(({ y }) => y !== null)?.y;
      return value == null ? [] : [{ node, value }];
    });
    const values = newest.map(({ value }) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)].map(formatMetric);
    setText(this.range, !values.length ? "not finite" : low === high ? `${low}` : `${low} – ${high}`);
    const texts = newest.slice(0, MAX_IN_LABEL).map(({ node, value }) => `${node} ${formatMetric(value)}`);
    setAttribute(this.svg, "aria-label", `${this.metric}: ${texts.join(", ")}`);
  }

  private pointAtPixel(clientX: number): void {
    const box = this.svg.getBoundingClientRect();
    this.pointAt(this.xScale.toValue(((clientX - box.left) / box.width) * PLOT.width));
  }

  private moveByKey(event: KeyboardEvent): void {
    const all = [...this.dots.values()].flat().map(({ x }) => x);
    const xs = [...new Set(all)].sort((one, other) => one - other);
    const last = xs.length - 1;
    const at = this.pointer === null ? last : xs.indexOf(this.nearestX() ?? NaN);
    const moves: Record<string, number | null> = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      Home: 0,
      End: last,
      Escape: null,
    };
    const index = moves[event.key];
    if (index === undefined) return;
    event.preventDefault();
    this.pointAt(index === null ? null : (xs[Math.min(last, Math.max(0, index))] ?? null));
  }

  private nearestX(): number | undefined {
    const pointer = this.pointer ?? 0;
    const near = [...this.dots.values()].flatMap((dots) => nearest(dots, pointer) ?? []);
    near.sort((one, other) => Math.abs(one.x - pointer) - Math.abs(other.x - pointer));
    return near[0]?.x;
  }

  private pointAt(x: number | null): void {
    this.pointer = x;
    this.showTip();
  }

  private showTip(): void {
    const x = this.pointer === null ? undefined : this.nearestX();
    this.tip.hidden = x === undefined;
    if (x === undefined) {
      this.rule.replaceChildren();
      return;
    }
    const pixel = this.xScale.toPixel(x);
    const marks: SVGElement[] = [svgElement("path", { d: `M${pixel} ${PLOT.top}V${PLOT.height - PLOT.bottom}` })];
    const rows = [];
    for (const [node, dots] of this.dots) {
      const near = nearest(dots, x);
      if (!near) continue;
      marks.push(...this.markOf(node, near));
      rows.push(this.tipRow(node, near));
    }
    this.rule.replaceChildren(...marks);
    const title = element("div", { class: "tfos-facts" }, this.byStep ? `step ${formatTick(x)}` : formatSeconds(x));
    const hidden = rows.length - MAX_IN_TIP;
    const more = hidden > 0 ? [element("div", { class: "tfos-facts" }, `${hidden} more`)] : [];
    this.tip.replaceChildren(title, ...rows.slice(0, MAX_IN_TIP), ...more);
    this.tip.style.left = `${(100 * pixel) / PLOT.width}%`;
    this.tip.classList.toggle("tfos-left", pixel > PLOT.width / 2);
  }

  private markOf(node: string, { x, y }: Dot): SVGElement[] {
    if (y === null) return [];
    const [cx, cy] = [this.xScale.toPixel(x), this.yScale.toPixel(y)];
    const place = this.placeOf(node);
    const mark = drawMark(place, cx, cy);
    mark.classList.add(`tfos-hue${hueAt(place)}`);
    return [mark];
  }

  private tipRow(node: string, { y }: Dot): HTMLElement {
    const value = y === null ? "not finite" : formatMetric(y);
    const { class: hue, ...dash } = markAttributes(this.placeOf(node));
    const mark = element("span", { class: `tfos-mark ${hue}`, ...dash });
    return element("div", {}, element("span", {}, mark, node), element("b", {}, value));
  }
}

function inPlace(nodes: Iterable<string>, placeOf: (node: string) => number): string[] {
  return [...nodes].sort((one, other) => placeOf(one) - placeOf(other));
}

function tick(x: number, y: number, anchor: string, text: string): SVGTextElement {
  const made = svgElement("text", { class: "tfos-tick", x: String(x), y: String(y), "text-anchor": anchor });
  made.append(text);
  return made;
}
