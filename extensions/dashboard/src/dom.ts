// Builds elements and texts. Text always becomes a text node; what Python draws as HTML, and has escaped, `morph.ts` parses.

/** Makes an element with attributes and children; a string becomes a text node. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string | boolean> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Sets an element's text, but only touches the page when it differs. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** Sets an attribute, but only touches the page when it differs. */
export function setAttribute(target: Element, name: string, value: string): void {
  if (target.getAttribute(name) !== value) target.setAttribute(name, value);
}

/** A time of the day, such as "09:04:55". */
export function formatClock(time: Date): string {
  return time.toLocaleTimeString("en-GB");
}

export function plural(count: number, one: string): string {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}
