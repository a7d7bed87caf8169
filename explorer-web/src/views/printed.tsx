// The line as `regard translate` prints it, and the terms that it then has.

import { App } from "../app";
import { percent } from "../numbers";

const LONGEST = 20_000; // characters of all terms

/** A field for terms; Ctrl+Enter translates. */
export function Terms({ terms, change }: { terms: string; change: (terms: string) => void }) {
  const count = terms.split("\n").filter((line) => line.trim()).length;
  return (
    <details class="terms" open={count > 0}>
      <summary>Terms{count > 0 && `: ${count}`}</summary>
      <p class="hint" id="terms-hint">
        One on each line, such as <code>gato* = feline</code>. <code>gato*</code> stands for longer words, too. <code>Regard =</code> leaves a word as it is.
      </p>
      <textarea
        aria-label="Terms, one on each line"
        aria-describedby="terms-hint"
        rows={3}
        dir="auto"
        spellcheck={false}
        maxLength={LONGEST}
        value={terms}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form!.requestSubmit();
        }}
      />
    </details>
  );
}

/** What a person gets from `regard translate`: with stand-ins, tags and terms, each sentence by itself. */
export function Printed({ app, translation }: { app: App; translation: string }) {
  const printed = app.printed.value;
  if (!printed) return null;
  const { text, quality, doubts, terms, overlapping } = printed;
  const placed = Object.entries(terms);
  return (
    <section class="printed" aria-label="What regard translate prints">
      <h2>
        <code>regard translate</code> prints{text === translation && " the same"}
      </h2>
      {text !== translation && <p dir="auto">{text}</p>}
      <p class="hint">
        {quality !== null && <span>quality {percent(quality)}</span>}
        {doubts.length > 0 && <span>worth a check: {doubts.join(", ")}</span>}
        {placed.length > 0 && <span>terms: {placed.map(([source, target]) => `${source} → ${target}`).join(", ")}</span>}
        {overlapping.length > 0 && <span>not placed, because a longer term overlaps: {overlapping.join(", ")}</span>}
      </p>
    </section>
  );
}
