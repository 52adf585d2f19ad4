// A list in the page that keeps an element for each key: what has the focus stays where it is when the list changes.

export interface Item<T> {
  readonly node: HTMLElement;
  update(value: T): void;
}

export class KeyedList<T> {
  private readonly items = new Map<string, Item<T>>();

  constructor(
    readonly node: HTMLElement,
    private readonly keyOf: (value: T) => string,
    private readonly make: (value: T) => Item<T>,
  ) {}

  get shown(): Iterable<Item<T>> {
    return this.items.values();
  }

  update(values: readonly T[]): void {
    const keys = new Set(values.map(this.keyOf));
    for (const [key, item] of this.items) {
      if (keys.has(key)) continue;
      item.node.remove();
      this.items.delete(key);
    }
    values.forEach((value, place) => this.place(value, place));
  }

  private place(value: T, place: number): void {
    const key = this.keyOf(value);
    let item = this.items.get(key);
    if (!item) this.items.set(key, (item = this.make(value)));
    item.update(value);
    const there = this.node.children[place];
    if (there !== item.node) this.node.insertBefore(item.node, there ?? null);
  }
}
