// The lines of a file: all are translated, a few at a time.

import { Signal, signal } from "@preact/signals";
import { failure, posted } from "./server";

const MOST = 1000; // lines of a file
const TOGETHER = 8; // lines of a request
const LONGEST = 4000; // characters of a line

interface Line {
  text: string;
  translation: string | null; // null: not yet
}

/** The page that shows the lines: its model, its error, and the translation of a single sentence. */
interface Page {
  readonly model: Signal<string>;
  readonly error: Signal<string>;
  translate(text: string): Promise<void>;
}

/** The lines of the last file, and how far their translation has come. */
export class Lines {
  readonly all: Signal<Line[]> = signal([]);
  readonly note = signal("");
  private running: AbortController | null = null;

  constructor(private readonly page: Page) {}

  async open(file: File): Promise<void> {
    this.stop();
    const texts = (await file.slice(0, MOST * LONGEST).text()).split(/\r?\n/).map((line) => line.trim());
    const lines = texts.filter((line) => line);
    const cut = lines.length > MOST || file.size > MOST * LONGEST;
    this.note.value = cut ? `the first ${Math.min(MOST, lines.length)} lines of ${file.name}` : file.name;
    if (lines.length === 1) await this.page.translate(lines[0].slice(0, LONGEST));
    if (lines.length < 2) return;
    this.all.value = lines.slice(0, MOST).map((text) => ({ text: text.slice(0, LONGEST), translation: null }));
    await this.translate();
  }

  stop(): void {
    this.running?.abort();
    this.all.value = [];
  }

  private async translate(): Promise<void> {
    const request = (this.running = new AbortController());
    const model = this.page.model.value;
    const all = this.all.value;
    try {
      for (let start = 0; start < all.length && !request.signal.aborted; start += TOGETHER) {
        const lines = all.slice(start, start + TOGETHER).map(({ text }) => text);
        const answer = await fetch("api/lines", posted({ model, lines }, request.signal));
        if (!answer.ok) throw new Error(await failure(answer));
        const { translations } = (await answer.json()) as { translations: string[] };
        translations.forEach((translation, i) => (all[start + i] = { text: lines[i], translation }));
        this.all.value = [...all];
      }
    } catch (fault) {
      if (!request.signal.aborted) this.page.error.value = fault instanceof Error ? fault.message : String(fault);
    }
  }
}
