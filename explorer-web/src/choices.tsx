// Controls that several views share.

import type { App } from "./app";
import type { Attention } from "./contract";
import { Tone, TONES } from "./raster";
import { MEAN } from "./source";

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
      {words && app.header?.sequences.some((one) => one.words.length) && (
        <label class="check">
          <input type="checkbox" checked={app.pieces.value} onChange={(event) => (app.pieces.value = event.currentTarget.checked)} /> pieces
        </label>
      )}
    </>
  );
}

/** How weights become colours: a long row spreads its weights so thin that a linear scale shows nothing. */
export function ToneChoice({ app }: { app: App }) {
  return (
    <label>
      Colours{" "}
      <select value={app.tone} onChange={(event) => (app.tone = event.currentTarget.value as Tone)}>
        {Object.entries(TONES).map(([tone, text]) => (
          <option key={tone} value={tone}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
