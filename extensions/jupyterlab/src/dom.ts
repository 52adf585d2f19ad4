// Builds elements. Text always becomes a text node: nothing from a node or a kernel is ever parsed as HTML.

/** Makes an element with attributes and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Makes a button that says `text`, and does `action`. */
export function button(text: string, action: () => void, attributes: Record<string, string> = {}): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", action);
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

/** Sets a text, and hides its element while there is none. */
export function setOptionalText(target: HTMLElement, text: string): void {
  setText(target, text);
  target.hidden = !text;
}

/** Joins the parts that are not empty. */
export function joined(...parts: string[]): string {
  return parts.filter(Boolean).join(" · ");
}
