// Edits of attention, as the server takes them, with undo and redo.

import { computed, Signal } from "@preact/signals";
import type { App } from "./app";
import { Bundle } from "./contract";
import { MEAN } from "./source";

export interface Edit {
  attention: string;
  head: number | null; // null: all heads
  kind: "scale" | "temperature" | "hard" | "cell" | "from";
  factor?: number;
  temperature?: number;
  query?: number;
  key?: number;
  weight?: number;
  text?: string; // the prompt that the head is taken from
}

/** What an edit does, in words. */
export function described(edit: Edit): string {
  const where = `${edit.attention}${edit.head === null ? "" : ` head ${edit.head}`}`;
  if (edit.kind === "scale") return edit.factor === 0 ? `${where}: off` : `${where}: × ${edit.factor}`;
  if (edit.kind === "temperature") return `${where}: temperature ${edit.temperature}`;
  if (edit.kind === "hard") return `${where}: hard`;
  if (edit.kind === "from") return `${where}: from “${edit.text}”`;
  return `${where}: row ${edit.query}, column ${edit.key} = ${edit.weight}`;
}

/** The list of edits and the lists before and after it. The list is kept in the address. */
export class Edits {
  private readonly text: Signal<string>;
  private past: string[] = [];
  private future: string[] = [];
  readonly parsed = computed(() => parse(this.text.value));

  constructor(app: App) {
    this.text = app.address.text("edits");
  }

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  set(edits: Edit[]): void {
    this.past.push(this.text.value);
    this.future = [];
    this.text.value = edits.length ? JSON.stringify(edits) : "";
  }

  undo(): void {
    if (!this.canUndo) return;
    this.future.push(this.text.value);
    this.text.value = this.past.pop()!;
  }

  redo(): void {
    if (!this.canRedo) return;
    this.past.push(this.text.value);
    this.text.value = this.future.pop()!;
  }
}

function parse(text: string): Edit[] {
  try {
    const value: unknown = JSON.parse(text || "[]");
    return Array.isArray(value) ? (value as Edit[]) : [];
  } catch {
    return [];
  }
}

export const headOf = (head: number) => (head === MEAN ? null : head);

export async function changed(app: App, run: string, edits: Edit[], prefix: string, text: string): Promise<Bundle | null> {
  return app.ask("api/change", { run, prefix, edits, text }, app.prompts ? "running the model with the change" : "translating with the change");
}
