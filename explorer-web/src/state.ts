// What a person chose, one signal for each choice, kept in the address so that a link or a reload restores it.

import { effect, Signal, signal } from "@preact/signals";

interface Kept {
  signal: Signal<unknown>;
  fallback: string;
  write: (value: never) => string;
}

export class Address {
  private entries = new Map<string, Kept>();
  private count = signal(0); // of `kept`
  private initial: URLSearchParams;

  /** `lasting`: read and write the page's address; a notebook's widget does not own it. */
  constructor(readonly lasting: boolean) {
    this.initial = new URLSearchParams(lasting ? location.hash.slice(1) : "");
  }

  text(name: string, fallback = ""): Signal<string> {
    return this.keep(name, fallback, (x) => x, (x) => x);
  }

  flag(name: string, fallback = false): Signal<boolean> {
    return this.keep(name, fallback, (x) => x === "1", (x) => (x ? "1" : "0"));
  }

  number(name: string, fallback: number): Signal<number> {
    return this.keep(name, fallback, (x) => (Number.isFinite(Number(x)) ? Number(x) : fallback), String);
  }

  /** A whole number, or null for no choice. */
  place(name: string): Signal<number | null> {
    return this.keep<number | null>(
      name,
      null,
      (x) => (/^\d+$/.test(x) ? Number(x) : null),
      (x) => (x === null ? "" : String(x)),
    );
  }

  /** Write every change to the address, without a new entry in the history. */
  follow(): () => void {
    if (!this.lasting) return () => {};
    return effect(() => {
      void this.count.value;
      const parameters = new URLSearchParams();
      for (const [name, { signal: entry, fallback, write }] of this.entries) {
        const value = write(entry.value as never);
        if (value !== fallback) parameters.set(name, value);
      }
      const text = parameters.toString();
      if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    });
  }

  private keep<T>(name: string, fallback: T, read: (text: string) => T, write: (value: T) => string): Signal<T> {
    const entry = this.entries.get(name);
    if (entry) return entry.signal as Signal<T>;
    const text = this.initial.get(name);
    const created = signal<T>(text === null ? fallback : read(text));
    this.entries.set(name, { signal: created as Signal<unknown>, fallback: write(fallback), write: write as (value: never) => string });
    this.count.value = this.entries.size;
    return created;
  }
}
