// The parts that every view shares: the runs shown, the choices made, the server if there is one.

import { signal, Signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Theme } from "./colour";
import { Bundle, Header, Printed } from "./contract";
import { Lines } from "./lines";
import { save } from "./drawing";
import { Tone, TONES } from "./raster";
import { answered, Ask, failure, posted } from "./server";
import { MEAN, Source } from "./source";
import { Address } from "./state";

export class App {
  readonly address: Address;
  readonly scene: Signal<Source | null> = signal(null);
  readonly busy: Signal<string> = signal("");
  readonly error: Signal<string> = signal("");
  readonly progress: Signal<string> = signal(""); // of what the server computes
  readonly announcement: Signal<string> = signal(""); // read aloud by screen readers
  readonly theme: Signal<Theme> = signal("light");
  readonly view: Signal<string>;
  readonly model: Signal<string>;
  readonly text: Signal<string>;
  readonly prefix: Signal<string>;
  readonly terms: Signal<string>; // a glossary, as a person types it
  readonly printed: Signal<Printed | null> = signal(null); // of the sentence that is shown
  readonly attention: Signal<string>;
  readonly head: Signal<number>;
  readonly row: Signal<number | null>;
  readonly column: Signal<number | null>;
  readonly pieces: Signal<boolean>; // of a translation: pieces in place of words
  readonly words: Signal<boolean>; // of other texts: words in place of pieces
  readonly chat: Signal<boolean>;
  private readonly scale: Signal<string>;
  readonly exchanged: Signal<string>; // the sentence with words exchanged, in Change
  readonly lines = new Lines(this);
  readonly follow: Signal<boolean>;
  readonly pair: Signal<number | null>; // of the sentences with gold links
  readonly links: Signal<string>; // gold links of a typed sentence, such as "0-0 1-2": source word, target word
  private readonly listed: Signal<string[]>;
  private running: AbortController | null = null;
  private printing: AbortController | null = null;

  /** `models`: those of the server, the first is the default; none for a file or a notebook. */
  constructor(
    models: string[],
    readonly languages: string[], // models that read prompts
    lasting: boolean,
    readonly trains: boolean,
    readonly paired: boolean,
    readonly server: Ask,
  ) {
    this.listed = signal(models);
    const address = (this.address = new Address(lasting));
    this.view = address.text("view");
    this.model = address.text("model", models[0] ?? languages[0] ?? "");
    this.text = address.text("text");
    this.prefix = address.text("prefix");
    this.terms = address.text("terms");
    this.attention = address.text("attention");
    this.head = address.number("head", MEAN);
    this.row = address.place("row");
    this.column = address.place("column");
    this.pieces = address.flag("pieces");
    this.words = address.flag("words");
    this.chat = address.flag("chat");
    this.scale = address.text("scale", "fitting");
    this.exchanged = address.text("exchanged");
    this.follow = address.flag("follow");
    this.pair = address.place("pair");
    this.links = address.text("links");
  }

  /** The tone that was chosen for the pictures in Heads and Map; null: the one that fits each of them. */
  get tone(): Tone | null {
    return this.scale.value in TONES ? (this.scale.value as Tone) : null;
  }

  set tone(tone: Tone | null) {
    this.scale.value = tone ?? "fitting";
  }

  /** Whether there is a server with models. */
  get live(): boolean {
    return this.models.length + this.languages.length > 0;
  }

  /** Whether the chosen model reads prompts. */
  get prompts(): boolean {
    return this.languages.includes(this.model.value);
  }

  get models(): string[] {
    return this.listed.value;
  }

  /** Ask which checkpoints there are now; the newest one of the chosen model's run is translated with, once. */
  async newest(): Promise<void> {
    const answer = await this.server("api/models");
    if (!answer.ok) throw new Error(await failure(answer));
    const { models } = (await answer.json()) as { models: string[] };
    if (models.join() !== this.models.join()) this.listed.value = models;
    const [run] = this.model.value.split("@step-");
    const newest = models.filter((name) => name.startsWith(`${run}@step-`)).pop();
    if (!newest || (newest === this.model.value && this.header?.model === newest)) return;
    this.model.value = newest;
    this.links.value = ""; // they belong to the words of one translation
    await this.again();
  }

  /** What the address has: a sentence with gold links, or a sentence to translate. */
  async again(): Promise<void> {
    if (this.prompts) await this.prompt(this.text.value, true, this.prefix.value);
    else if (this.pair.value !== null) await this.give(this.pair.value, true);
    else if (this.text.value) await this.translate(this.text.value, this.prefix.value, true);
  }

  show(bundle: Bundle): void {
    this.scene.value = new Source(bundle, this.server);
  }

  /** Ask the server for a bundle. A new request cancels the one before; null if it was cancelled or refused. */
  async ask(path: string, request: object, doing: string): Promise<Bundle | null> {
    this.running?.abort();
    const controller = (this.running = new AbortController());
    this.busy.value = doing;
    this.error.value = "";
    try {
      const bundle = await post(this.server, path, request, controller.signal);
      return bundle;
    } catch (fault) {
      if (!controller.signal.aborted) this.error.value = fault instanceof Error ? fault.message : String(fault);
      return null;
    } finally {
      if (this.running === controller) {
        this.running = null;
        this.busy.value = "";
      }
    }
  }

  /** Show the scene that the server was started with. */
  async open(address: string): Promise<void> {
    this.busy.value = "opening";
    try {
      const answer = await this.server(address);
      if (!answer.ok) throw new Error(await failure(answer));
      this.show(Bundle.parse(new Uint8Array(await answer.arrayBuffer())));
    } catch (fault) {
      this.error.value = fault instanceof Error ? fault.message : String(fault);
    }
    this.busy.value = "";
  }

  /** Translate a sentence; `again`: as the address has it, with the cell that was chosen. */
  async translate(text: string, prefix = "", again = false): Promise<void> {
    this.begin(text, prefix, null, again);
    if (!text.trim()) {
      this.scene.value = null;
      return;
    }
    const request = { model: this.model.value, text, prefix, links: this.links.value };
    const bundle = await this.ask("api/translate", request, "translating");
    if (!bundle) return;
    this.show(bundle);
    if (!prefix) await this.print();
  }

  /** Ask for the sentence as `regard translate` prints it. */
  private async print(): Promise<void> {
    const { signal } = (this.printing = new AbortController());
    const request = { model: this.model.value, text: this.text.value, glossary: rows(this.terms.value) };
    try {
      this.printed.value = await answered<Printed>(this.server, "api/printed", request, signal);
    } catch (fault) {
      if (!signal.aborted) this.error.value = fault instanceof Error ? fault.message : String(fault);
    }
  }

  /** Run the model on a prompt; on its first one if there is no text. What it predicts is compared with the run shown.
   * An encoder-decoder writes its target where none is typed. */
  async prompt(text: string, again = false, target = ""): Promise<void> {
    const beside = this.header?.prompt && this.header.model === this.model.value && !again ? { beside: this.header.run } : {};
    this.begin(text, target, null, again);
    const request = { model: this.model.value, text, target, chat: this.chat.value, ...beside };
    const bundle = await this.ask("api/prompt", request, "running the model");
    if (bundle) this.show(bundle);
  }

  /** Write a token after a place of the target of an encoder-decoder, which then ends there. */
  async step(place: number, token: number): Promise<void> {
    const bundle = await this.ask("api/step", { run: this.header!.run, place, token }, "running the model");
    if (!bundle) return;
    this.begin(this.text.value, bundle.header.prompt!.target!, null, false);
    this.show(bundle);
  }

  /** Show what each key moves in place of weights, or weights again. */
  async moved(moved: boolean): Promise<void> {
    const bundle = await this.ask("api/moved", { run: this.header!.run, moved }, moved ? "computing what keys move" : "computing weights");
    if (bundle) this.show(bundle);
  }

  /** Read the server's progress from time to time while something is waited for. */
  async watchProgress(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await new Promise((resolve) => setTimeout(resolve, 700));
      if (signal.aborted) break;
      try {
        const { doing, done, of } = (await (await this.server("api/progress", { signal })).json()) as { doing: string; done: number; of: number };
        if (!signal.aborted) this.progress.value = doing && of > 1 ? `${doing}: ${done} of ${of}` : doing;
      } catch {
        break; // the request that is waited for reports the fault
      }
    }
    this.progress.value = "";
  }

  /** Make or remove a gold link between a word of the translation and one of the source. */
  async toggleLink(row: number, column: number): Promise<void> {
    const link = `${column}-${row}`;
    const links = this.links.value.split(" ").filter((one) => one);
    this.links.value = (links.includes(link) ? links.filter((one) => one !== link) : [...links, link]).join(" ");
    await this.again();
  }

  /** Show a sentence with gold links, and its translation as the model writes it. */
  async give(pair: number, again = false): Promise<void> {
    this.begin("", "", pair, again);
    const bundle = await this.ask("api/pair", { model: this.model.value, pair }, "reading the translation");
    if (bundle) this.show(bundle);
  }

  private begin(text: string, prefix: string, pair: number | null, again: boolean): void {
    this.printing?.abort();
    this.printed.value = null;
    this.text.value = text;
    this.prefix.value = prefix;
    this.pair.value = pair;
    if (again) return;
    this.links.value = "";
    this.row.value = this.column.value = null;
    this.exchanged.value = "";
  }

  /** Save what is shown as a page that needs no server. */
  async saveFile(): Promise<void> {
    this.busy.value = "writing the file";
    this.error.value = "";
    try {
      const answer = await this.server(this.scene.value!.url("file", {}));
      if (!answer.ok) throw new Error(await failure(answer));
      save("regard.html", new Blob([await answer.arrayBuffer()], { type: "text/html" }));
    } catch (fault) {
      this.error.value = fault instanceof Error ? fault.message : String(fault);
    }
    this.busy.value = "";
  }

  get header(): Header | null {
    return this.scene.value?.header ?? null;
  }
}

/** Lines "source = target" as those of a glossary, which have a tab there; "source =" leaves a term as it is. */
const rows = (terms: string): string =>
  terms.replace(/^([^\t\n=]*?) *=([^\t\n]*)$/gm, (_, source: string, target: string) => `${source}\t${target.trim() || "="}`);

export async function post(server: Ask, path: string, request: object, abort?: AbortSignal): Promise<Bundle> {
  const answer = await server(path, posted(request, abort));
  if (!answer.ok) throw new Error(await failure(answer));
  return Bundle.parse(new Uint8Array(await answer.arrayBuffer()));
}

export const Shared = createContext<App>(null as unknown as App);
export const useApp = () => useContext(Shared);
