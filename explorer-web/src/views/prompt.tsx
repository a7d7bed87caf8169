// Prompt: a text, how likely each of its tokens was, and what may come next at the chosen one.

import { useEffect, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import { ModelChoice } from "../choices";
import { css, ink, scale } from "../colour";
import type { Next, Prompt } from "../contract";
import { fixed, percent } from "../numbers";
import type { Source } from "../source";
import { pieceText } from "../text";

export function Prompted() {
  const app = useApp();
  const source = app.scene.value;
  const prompt = source?.header.prompt;
  return (
    <>
      {app.live && <Input key={JSON.stringify([prompt?.text, prompt?.target])} app={app} prompt={prompt} />}
      {source && prompt && <Read app={app} source={source} prompt={prompt} />}
    </>
  );
}

function Input({ app, prompt }: { app: App; prompt: Prompt | undefined }) {
  const [text, setText] = useState(app.text.value || (prompt?.text ?? ""));
  const [target, setTarget] = useState(prompt?.target ?? "");
  const form = useRef<HTMLFormElement>(null);
  const submit = () => form.current!.requestSubmit();
  return (
    <form
      class="input"
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        // The target of another source is written anew, if nobody typed it.
        app.prompt(text, false, target === prompt?.target && text !== prompt.text ? "" : target);
      }}
    >
      <ModelChoice app={app} text={text} />
      <Typed name={hasTarget(prompt) ? "Source" : "Prompt"} value={text} set={setText} submit={submit} />
      {hasTarget(prompt) && <Typed name="Target" hint="the model writes it" value={target} set={setTarget} submit={submit} />}
      <span class="tools">
        <button type="submit">Run</button>
        {prompt?.template && (
          <label class="check">
            <input type="checkbox" checked={app.chat.value} onChange={(event) => (app.chat.value = event.currentTarget.checked)} /> as a message of a chat
          </label>
        )}
      </span>
    </form>
  );
}

/** Whether a prompt has a source and a target. */
export const hasTarget = (prompt: Prompt | undefined) => typeof prompt?.target === "string";

/** A text that Enter submits. */
function Typed({ name, hint = "", value, set, submit }: { name: string; hint?: string; value: string; set: (text: string) => void; submit: () => void }) {
  return (
    <label class="wide">
      <span class={hint || name === "Source" ? "" : "hidden"}>{name}</span>
      <textarea
        class="sentence"
        dir="auto"
        rows={Math.min(8, Math.max(2, value.split("\n").length))}
        maxLength={64000}
        value={value}
        placeholder={hint}
        onInput={(event) => set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          submit();
        }}
      />
    </label>
  );
}

/** The tokens after which the model predicts: those of the prompt, or of the target. */
export function predicting({ header }: Source): string[] {
  const { sequences } = header;
  return (sequences.find(({ name }) => name === "target") ?? sequences[0]).tokens;
}

/** The token whose prediction is shown: the chosen row, at first the last. */
export function placeOf(app: App, source: Source): number {
  const count = source.header.prompt!.next.length;
  return Math.min(app.row.value ?? count - 1, count - 1);
}

function Read({ app, source, prompt }: { app: App; source: Source; prompt: Prompt }) {
  const place = placeOf(app, source);
  const tokens = predicting(source);
  const next = prompt.next[place]?.[0];
  const write = () => (hasTarget(prompt) ? app.step(place, next.id) : app.prompt(prompt.text + (next.token.startsWith("▁") ? " " : "") + pieceText(next.token)));
  return (
    <>
      <Tokens app={app} tokens={tokens} prompt={prompt} place={place} />
      <section aria-label="What may come next">
        <h2>
          After “<bdi>{pieceText(tokens[place])}</bdi>” ({place})
        </h2>
        <Bars next={prompt.next[place]} />
      </section>
      {app.live && next && (
        <p class="tools">
          <button type="button" onClick={write} disabled={(!hasTarget(prompt) && (place !== prompt.next.length - 1 || prompt.chat)) || Boolean(app.busy.value)}>
            Write “{pieceText(next.token)}” and run again
          </button>
          <span class="hint">Effects shows which heads make the model say it; Change switches heads off.</span>
        </p>
      )}
    </>
  );
}

/** The tokens of the prompt: darker ones were likelier. Arrow keys step through them. */
function Tokens({ app, tokens, prompt, place }: { app: App; tokens: string[]; prompt: Prompt; place: number }) {
  const colours = scale(app.theme.value);
  const list = useRef<HTMLOListElement>(null);
  const select = (to: number) => {
    const at = Math.min(Math.max(to, 0), tokens.length - 1);
    app.row.value = at;
    const [likeliest] = prompt.next[at];
    app.announcement.value = `${pieceText(tokens[at])}, next ${pieceText(likeliest.token)} ${percent(Math.exp(likeliest.log_probability))}`;
    list.current?.querySelectorAll("button")[at]?.focus();
  };
  const step = (event: KeyboardEvent, at: number) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(to);
  };
  useEffect(() => {
    list.current?.children[place]?.scrollIntoView({ block: "nearest" });
  }, [place]);
  return (
    <section aria-label={hasTarget(prompt) ? "The tokens of the target" : "The tokens of the prompt"}>
      <ol class="tokens" dir="auto" ref={list} aria-label="Tokens">
        {tokens.map((token, i) => {
          const score = prompt.log_probabilities[i];
          const share = score === null ? 0 : Math.exp(score);
          return (
            <li key={i} class={i === place ? "chosen" : ""}>
              <button
                type="button"
                tabIndex={i === place ? 0 : -1}
                aria-pressed={i === place}
                title={score === null ? `${i}` : `${i}: ${percent(share)}, log-probability ${fixed(score)}`}
                style={{ backgroundColor: css(colours, share), color: ink(colours, share) }}
                onClick={() => select(i)}
                onKeyDown={(event) => step(event, i)}
              >
                {token.startsWith("▁") && <span class="space" aria-hidden="true" />}
                <bdi>{pieceText(token)}</bdi>
              </button>
            </li>
          );
        })}
      </ol>
      <p class="hint">The darker a token, the likelier the model found it after those before. Choose one with ← → or a click.</p>
    </section>
  );
}

/** The likeliest next tokens; where there is a run before, both and their difference. */
export function Bars({ next, names = ["before", "now"] }: { next: Next[]; names?: [string, string] }) {
  const compared = next.some((one) => one.before !== undefined);
  const width = (score: number | null | undefined) => ({ width: `${(100 * Math.exp(score ?? -Infinity)).toFixed(2)}%` });
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label="Next tokens">
      <table class="next">
        <thead>
          <tr>
            <th scope="col">token</th>
            <th scope="col">probability</th>
            <th scope="col">log-probability{compared && `, ${names[1]}`}</th>
            {compared && <th scope="col">{names[0]}</th>}
            {compared && <th scope="col">change</th>}
          </tr>
        </thead>
        <tbody>
          {next.map((one) => (
            <tr key={one.id} data-token={one.id}>
              <th scope="row" dir="auto">
                {pieceText(one.token)}
              </th>
              <td class="share">
                <span class="track">
                  {compared && <i class="was" style={width(one.before)} />}
                  <i style={width(one.log_probability)} />
                </span>{" "}
                {percent(Math.exp(one.log_probability))}
              </td>
              <td class="score">{fixed(one.log_probability)}</td>
              {compared && <td class="was">{one.before === null || one.before === undefined ? "not among 100" : fixed(one.before)}</td>}
              {compared && <td>{one.before === null || one.before === undefined ? "–" : signed(one.log_probability - one.before)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const signed = (change: number) => (change > 0 ? "+" : "") + fixed(change);
