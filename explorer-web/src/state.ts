// What a person chose, one signal for each choice, kept in the address so that a link or a reload restores it.

import { effect, Signal, signal } from "@preact/signals";

interface Kept {
  signal: Signal<unknown>;
  fallback: string;
  write: (value: never) => string;
}

export class Address {
  private kept = new Map<string, Kept>();
  private count = signal(0); // of `kept`
  private given: URLSearchParams;

  /** `lasting`: read and write the page's address; a notebook's widget does not own it. */
  constructor(readonly lasting: boolean) {
    this.given = new URLSearchParams(lasting ? location.hash.slice(1) : "");
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
      const now = new URLSearchParams();
      for (const [name, { signal: one, fallback, write }] of this.kept) {
        const value = write(one.value as never);
        if (value !== fallback) now.set(name, value);
      }
      const text = now.toString();
      if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    });
  }

  private keep<T>(name: string, fallback: T, read: (text: string) => T, write: (value: T) => string): Signal<T> {
    const known = this.kept.get(name);
    if (known) return known.signal as Signal<T>;
    const given = this.given.get(name);
    const one = signal<T>(given === null ? fallback : read(given));
    this.kept.set(name, { signal: one as Signal<unknown>, fallback: write(fallback), write: write as (value: never) => string });
    this.count.value = this.kept.size;
    return one;
  }
}
