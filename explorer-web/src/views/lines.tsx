// The lines of a file and their translations; a click looks at one.

import { useMemo } from "preact/hooks";
import { App } from "../app";

export function FileLines({ app }: { app: App }) {
  const { lines } = app;
  const all = lines.all.value;
  const done = all.filter((line) => line.translation !== null).length;
  const said = useMemo(() => (done === all.length ? `${done} lines are translated` : ""), [done === all.length, all.length]);
  if (!all.length) return null;
  return (
    <section class="lines" aria-label="Lines of the file">
      <p class="tools">
        <span class="hint">{lines.note.value}</span>
        <progress aria-label="Lines translated" value={done} max={all.length} />
        <span class="hint" id="lines-done">
          {done} of {all.length}
        </span>
        <button type="button" onClick={() => lines.stop()}>
          Close
        </button>
        <span class="hidden" role="status">
          {said}
        </span>
      </p>
      <ol class="sheet">
        {all.map(({ text, translation }, i) => (
          <li key={i}>
            <button type="button" disabled={translation === null} aria-pressed={text === app.text.value} onClick={() => app.translate(text)}>
              <bdi>{text}</bdi>
              <small dir="auto">{translation ?? "…"}</small>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
