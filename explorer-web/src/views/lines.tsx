// The lines of a file and their translations, or sentences with gold links; a click looks at one.

import { useEffect, useMemo, useState } from "preact/hooks";
import { App } from "../app";
import { failure } from "../server";

export function FileLines({ app }: { app: App }) {
  const { lines } = app;
  const all = lines.all.value;
  const done = all.filter((line) => line.translation !== null).length;
  const announcement = useMemo(() => (done === all.length ? `${done} lines are translated` : ""), [done === all.length, all.length]);
  if (!all.length) return null;
  return (
    <section class="lines" aria-label="Lines of the file">
      <p class="tools">
        <span class="hint">{lines.note.value}</span>
        <progress aria-label="Lines translated" value={done} max={all.length} />
        <span class="hint lines-done">
          {done} of {all.length}
        </span>
        <button type="button" onClick={() => lines.stop()}>
          Close
        </button>
        <span class="hidden" role="status">
          {announcement}
        </span>
      </p>
      <ol class="sheet">
        {all.map(({ text, translation }, i) => (
          <Line key={i} text={text} translation={translation} on={text === app.text.value} look={() => app.translate(text)} />
        ))}
      </ol>
    </section>
  );
}

/** The sentences with gold links that the server was started with. */
export function Pairs({ app }: { app: App }) {
  const [all, setAll] = useState<[string, string][]>([]);
  useEffect(() => {
    const load = async () => {
      const answer = await app.server("api/pairs");
      if (!answer.ok) throw new Error(await failure(answer));
      setAll(((await answer.json()) as { pairs: [string, string][] }).pairs);
    };
    load().catch((fault: Error) => (app.error.value = fault.message));
  }, []);
  return (
    <details class="lines" open={app.pair.value === null}>
      <summary>Sentences with gold links: {all.length}</summary>
      <ol class="sheet">
        {all.map(([text, translation], i) => (
          <Line key={i} text={text} translation={translation} on={i === app.pair.value} look={() => app.give(i)} />
        ))}
      </ol>
    </details>
  );
}

/** A sentence and its translation; null while it is not yet translated. */
function Line({ text, translation, on, look }: { text: string; translation: string | null; on: boolean; look: () => void }) {
  return (
    <li>
      <button type="button" disabled={translation === null} aria-pressed={on} onClick={look}>
        <bdi>{text}</bdi>
        <small dir="auto">{translation ?? "…"}</small>
      </button>
    </li>
  );
}
