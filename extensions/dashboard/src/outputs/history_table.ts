// In the table of runs: sorts by the column whose title is pressed, shows the runs that fit some words, and unfolds a run
// whose row is pressed. Stands in the output itself, without a kernel; where scripts do not run, rows still unfold.

import { element } from "../dom";
import { whileMounted } from "../page";

declare const TFOS_OPTIONS: { element: string };

function enliven(table: HTMLTableElement): void {
  const titles = [...(table.tHead?.rows[0]?.cells ?? [])];
  titles.forEach((title, column) => {
    const button = element("button", { class: "tfos-sort", type: "button" }, title.textContent ?? "");
    title.replaceChildren(button);
    button.addEventListener("click", () => sort(table, titles, column));
  });
  const filter = element("input", { class: "tfos-filter", type: "search", placeholder: "Filter runs", "aria-label": "Filter runs" });
  const count = element("span", { class: "tfos-facts", role: "status" });
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const bodies = [...table.tBodies];
    for (const body of bodies) body.hidden = !words.every((word) => textOf(body).includes(word));
    const shown = bodies.filter(({ hidden }) => !hidden).length;
    count.textContent = words.length ? `${shown} of ${bodies.length}` : "";
  });
  table.parentElement?.before(element("div", { class: "tfos-history-tools" }, filter, count));
  table.addEventListener("click", ({ target }) => {
    const more = (target as Element).closest("tr")?.querySelector<HTMLDetailsElement>(".tfos-more");
    // Whoever selects text wants it, and not the run.
    if (more && !(target as Element).closest("summary, a, button") && getSelection()?.isCollapsed) more.open = !more.open;
  });
}

/** By what is in the column; a second time, the other way round. Runs without a value come last. */
function sort(table: HTMLTableElement, titles: HTMLElement[], column: number): void {
  const title = titles[column] as HTMLElement;
  const ways = title.classList.contains("tfos-numeric") ? ["descending", "ascending"] : ["ascending", "descending"];
  const way = title.getAttribute("aria-sort") === ways[0] ? ways[1] : ways[0];
  for (const one of titles) one.removeAttribute("aria-sort");
  title.setAttribute("aria-sort", way as string);
  const sign = way === "ascending" ? 1 : -1;
  const found = [...table.tBodies].map((body) => ({ body, value: valueOf(body.rows[0]?.cells[column]) }));
  found.sort((one, other) => {
    if (one.value === "" || other.value === "") return Number(one.value === "") - Number(other.value === "");
    if (typeof one.value === "number" && typeof other.value === "number") return sign * (one.value - other.value);
    return sign * String(one.value).localeCompare(String(other.value), undefined, { numeric: true });
  });
  table.append(...found.map(({ body }) => body));
}

function valueOf(cell: HTMLElement | undefined): number | string {
  const rank = cell?.getAttribute("data-rank");
  if (rank) return Number(rank);
  return cell?.textContent?.trim() ?? "";
}

/** What its reader sees of a run without unfolding it. */
function textOf(body: HTMLElement): string {
  return [...body.querySelectorAll("tr:not(.tfos-more-row)")].map((row) => row.textContent).join(" ").toLowerCase();
}

void whileMounted(TFOS_OPTIONS.element, (box) => {
  enliven(box.querySelector("table") as HTMLTableElement);
  return 0;
});
