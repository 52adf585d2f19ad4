// The values of a chart at the pointer, or where the arrow keys lead: they stand beside the lines that Python draws.

import { element } from "./dom";

/** A tip has no more lines. */
const MAX_ROWS = 12;

interface Line {
  readonly el: SVGElement;
  /** By x; a value that is not finite is empty. */
  readonly points: [x: number, text: string][];
}

export class Tips {
  readonly tip = element("div", { class: "tfos-tip", hidden: true });
  readonly rule = element("div", { class: "tfos-rule", hidden: true });
  private chart: Element | null = null;
  /** Where the reader points at, on the x axis. */
  private pointer = 0;

  /** `root` holds the charts; the tip stands beside it, in `el`. */
  constructor(
    root: HTMLElement,
    readonly el: HTMLElement,
  ) {
    el.append(root, this.rule, this.tip);
    root.addEventListener("pointermove", (event) => this.pointAtPixel(event));
    root.addEventListener("pointerleave", () => this.show(null));
    root.addEventListener("focusout", () => this.show(null));
    root.addEventListener("keydown", (event) => this.moveByKey(event));
  }

  /** The charts have been drawn anew. */
  update(): void {
    this.show(this.chart);
  }

  private pointAtPixel(event: PointerEvent): void {
    const svg = chartAt(event);
    if (!svg) return this.show(null);
    const { toValue } = axisOf(svg);
    const box = svg.getBoundingClientRect();
    this.pointer = toValue(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
    this.show(svg);
  }

  private moveByKey(event: KeyboardEvent): void {
    const svg = chartAt(event);
    if (!svg) return;
    const all = linesOf(svg).flatMap(({ points }) => points.map(([x]) => x));
    const xs = [...new Set(all)].sort((one, other) => one - other);
    const last = xs.length - 1;
    const at = this.chart === svg ? xs.indexOf(nearest(xs, this.pointer)) : last;
    const moves: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, Escape: -1 };
    const index = moves[event.key];
    if (index === undefined) return;
    event.preventDefault();
    this.pointer = xs[Math.min(last, Math.max(0, index))] ?? 0;
    this.show(event.key === "Escape" ? null : svg);
  }

  private show(chart: Element | null): void {
    this.chart = chart?.isConnected ? chart : null;
    const lines = this.chart ? linesOf(this.chart) : [];
    const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
    this.tip.hidden = this.rule.hidden = !xs.length;
    if (!this.chart || !xs.length) return;
    const x = nearest(xs, this.pointer);
    const rows = lines.map((line) => rowOf(line, x));
    const unit = this.chart.getAttribute("data-unit");
    const shown = x.toLocaleString("en-US", { maximumFractionDigits: 2 });
    const title = element("div", { class: "tfos-facts" }, unit === "step" ? `step ${shown}` : `${shown} s`);
    const more = rows.length > MAX_ROWS ? [element("div", { class: "tfos-facts" }, `${rows.length - MAX_ROWS} more`)] : [];
    this.tip.replaceChildren(title, ...rows.slice(0, MAX_ROWS), ...more);
    this.place(this.chart as SVGSVGElement, x);
  }

  private place(svg: SVGSVGElement, x: number): void {
    const [box, around] = [svg.getBoundingClientRect(), this.el.getBoundingClientRect()];
    const share = axisOf(svg).toPixel(x) / svg.viewBox.baseVal.width;
    const left = `${box.left - around.left + share * box.width}px`;
    const top = `${box.top - around.top}px`;
    Object.assign(this.rule.style, { left, top, height: `${box.height * 0.85}px` });
    Object.assign(this.tip.style, { left, top });
    this.tip.classList.toggle("tfos-left", share > 0.5);
  }
}

function chartAt(event: Event): SVGSVGElement | null {
  return (event.target as Element).closest<SVGSVGElement>("svg[data-across]");
}

function axisOf(svg: Element): { toPixel(x: number): number; toValue(pixel: number): number } {
  const [low = 0, start = 0, perUnit = 1] = (svg.getAttribute("data-across") ?? "").split(" ").map(Number);
  return { toPixel: (x) => start + (x - low) * perUnit, toValue: (pixel) => low + (pixel - start) / perUnit };
}

/** The values of a chart stand in the first look that has its x axis; not all of its lines are in the chosen look. */
function linesOf(chart: Element): Line[] {
  const looks = [...(chart.closest("figure")?.querySelectorAll("svg[data-across]") ?? [chart])];
  const first = looks.find((look) => look.getAttribute("data-unit") === chart.getAttribute("data-unit"));
  const all = [...(first?.querySelectorAll<SVGElement>("[data-points]") ?? [])];
  return all.filter((el) => getComputedStyle(el).display !== "none").map((el) => {
    const points = (el.getAttribute("data-points") ?? "").split(" ").map((point): [number, string] => {
      const [x = "", text = ""] = point.split("=");
      return [Number(x), text];
    });
    return { el, points };
  });
}

function nearest(xs: readonly number[], to: number): number {
  return xs.reduce((best, x) => (Math.abs(x - to) < Math.abs(best - to) ? x : best), xs[0] ?? 0);
}

function rowOf({ el, points }: Line, at: number): HTMLElement {
  const x = nearest(
    points.map(([one]) => one),
    at,
  );
  const text = points.find(([one]) => one === x)?.[1] || "not finite";
  const hue = [...el.classList].find((name) => name.startsWith("tfos-hue"));
  const mark = { class: `tfos-mark ${hue ?? ""}`, "data-dash": el.dataset["dash"] ?? "0" };
  return element("div", {}, element("span", {}, element("span", mark), el.dataset["node"] ?? ""), element("b", {}, text));
}
