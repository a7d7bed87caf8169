// Controls that several views share.

import type { App } from "./app";
import type { Attention } from "./contract";
import { Tone, TONES } from "./raster";
import { MEAN } from "./source";

/** The models of the server: those that translate, and those that read prompts. */
export function ModelChoice({ app, text }: { app: App; text: string }) {
  return (
    <label>
      Model{" "}
      <select
        value={app.model.value}
        onChange={(event) => {
          app.model.value = event.currentTarget.value;
          app.follow.value = false;
          if (app.prompts) app.prompt(text);
          else if (app.pair.value === null) app.translate(text);
          else app.give(app.pair.value);
        }}
      >
        {[...app.models, ...app.languages].map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

interface AttentionChoiceProps {
  app: App;
  attentions: Attention[];
  now: Attention;
  head: number;
  mean?: boolean; // whether the mean of the heads can be chosen
  words?: boolean; // whether words, in place of pieces, can be
}

export function AttentionChoice({ app, attentions, now, head, mean = true, words = mean }: AttentionChoiceProps) {
  return (
    <>
      <label>
        Attention{" "}
        <select value={now.name} onChange={(event) => (app.attention.value = event.currentTarget.value)}>
          {attentions.map((one) => (
            <option key={one.name}>{one.name}</option>
          ))}
        </select>
      </label>
      {now.heads.length > 1 && (
        <label>
          Head{" "}
          <select value={String(head)} onChange={(event) => (app.head.value = Number(event.currentTarget.value))}>
            {mean && <option value={MEAN}>mean</option>}
            {now.heads.map((number, place) => (
              <option key={number} value={place}>
                {number}
              </option>
            ))}
          </select>
        </label>
      )}
      {words && <UnitChoice app={app} />}
      {words && app.header?.prompt && <MovedChoice app={app} />}
    </>
  );
}

/** Pieces of a translation, which shows words; words of other texts, which show pieces. */
export function UnitChoice({ app }: { app: App }) {
  if (!app.header?.sequences.some((one) => one.words.length)) return null;
  const [unit, on] = app.header.translation ? (["pieces", app.pieces] as const) : (["words", app.words] as const);
  return (
    <label class="check">
      <input type="checkbox" checked={on.value} onChange={(event) => (on.value = event.currentTarget.checked)} /> {unit}
    </label>
  );
}

/** Weights, or what each key moves: the norm of weight × value × output projection, as a share of its row. */
export function MovedChoice({ app }: { app: App }) {
  const { prompt, run } = app.header!;
  if (!prompt || run === null) return null;
  return (
    <label>
      Cells are{" "}
      <select value={prompt.moved ? "moved" : "weight"} disabled={Boolean(app.busy.value)} onChange={(event) => app.moved(event.currentTarget.value === "moved")}>
        <option value="weight">weights</option>
        <option value="moved">what is moved</option>
      </select>
    </label>
  );
}

/** How weights become colours: a long row spreads its weights so thin that a linear scale shows nothing. */
export function ToneChoice({ app }: { app: App }) {
  return (
    <label>
      Colours{" "}
      <select value={app.tone ?? ""} onChange={(event) => (app.tone = (event.currentTarget.value as Tone) || null)}>
        <option value="">from the data</option>
        {Object.entries(TONES).map(([tone, text]) => (
          <option key={tone} value={tone}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
