// Change: edit attentions and see at once what the model does then; or look at two runs side by side.

import { useEffect, useMemo, useState } from "preact/hooks";
import { App, post, useApp } from "../app";
import { AttentionChoice } from "../choices";
import type { Attention } from "../contract";
import { changed, described, Edit, Edits, headOf } from "../edits";
import { chosenIn, labelled, wholeWords } from "../labels";
import { Matrix } from "../matrix";
import { difference, fixed, peak, roundTop } from "../numbers";
import { MEAN, Source } from "../source";
import { pieceText } from "../text";
import { Bars, placeOf, predicting } from "./prompt";

export function Change() {
  const app = useApp();
  const source = app.scene.value;
  if (!source || source.header.run === null || !(source.header.translation ?? source.header.prompt)) return <p class="hint">{app.prompts ? "Run a prompt first." : "Translate a sentence first."}</p>;
  return <Editor key={source.header.run} app={app} source={source} run={source.header.run} />;
}

function Editor({ app, source, run }: { app: App; source: Source; run: string }) {
  const edits = useMemo(() => new Edits(app), []);
  const [edited, setEdited] = useState<Source | null>(null);
  const { attentions, prompt } = source.header;
  const sentence = (source.header.translation ?? prompt)!.text;
  const text = app.exchanged.value || sentence;
  const headEdits = edits.parsed.value.filter(({ attention, head }) =>
    attentions.some((one) => one.name === attention && (head === null || one.heads.includes(head))),
  );
  const hasChanges = headEdits.length > 0 || text !== sentence;
  const requested = JSON.stringify([headEdits, text]);
  useEffect(() => {
    if (!hasChanges) {
      setEdited(null);
      return;
    }
    changed(app, run, headEdits, app.prefix.value, text).then((bundle) => bundle && setEdited(new Source(bundle, app.server)));
  }, [requested, run]);
  const attention = attentions.find((one) => one.name === app.attention.value) ?? attentions[attentions.length - 1];
  const head = app.head.value < attention.heads.length ? app.head.value : MEAN;
  const add = (edit: Omit<Edit, "attention" | "head">) => edits.set([...headEdits, { attention: attention.name, head: headOf(head), ...edit }]);
  const step = (event: KeyboardEvent) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    event.preventDefault();
    if (event.shiftKey) edits.redo();
    else edits.undo();
  };
  return (
    <div onKeyDown={step}>
      <div class="tools">
        <AttentionChoice app={app} attentions={attentions} now={attention} head={head} />
      </div>
      <div class="tools" role="group" aria-label="Edits">
        <button type="button" onClick={() => add({ kind: "scale", factor: 0 })}>
          Off
        </button>
        <Amount name="Scale" start={0.5} low={-10} high={10} act={(factor) => add({ kind: "scale", factor })} />
        <Amount name="Temperature" start={0.5} low={0.01} high={100} act={(temperature) => add({ kind: "temperature", temperature })} />
        <button type="button" onClick={() => add({ kind: "hard" })}>
          Hard
        </button>
        <CellEdit app={app} attention={attention} add={add} tokens={Boolean(prompt)} />
        <span class="tools">
          <button type="button" class="undo" disabled={!edits.canUndo} onClick={() => edits.undo()}>
            Undo
          </button>
          <button type="button" class="redo" disabled={!edits.canRedo} onClick={() => edits.redo()}>
            Redo
          </button>
        </span>
      </div>
      {prompt && <Another act={(text) => add({ kind: "from", text })} />}
      <ul class="edits" aria-label="Edits made">
        {headEdits.map((edit, place) => (
          <li key={place}>
            {described(edit)}{" "}
            <button type="button" aria-label={`Remove ${described(edit)}`} onClick={() => edits.set(headEdits.filter((_, i) => i !== place))}>
              ×
            </button>
          </li>
        ))}
      </ul>
      <Exchange key={text} text={text} prompt={Boolean(prompt)} act={(words) => (app.exchanged.value = words === sentence ? "" : words)} />
      {prompt ? (
        <Predicted app={app} before={source} after={hasChanges ? edited : null} attention={attention} head={head} />
      ) : (
        <Outcome app={app} before={source} after={hasChanges ? edited : null} attention={attention} head={head} />
      )}
      <Beside app={app} source={source} attention={attention} head={head} />
    </div>
  );
}

/** The prompt that the outputs of the head, or of all heads, are taken from. */
function Another({ act }: { act: (text: string) => void }) {
  const [draft, setDraft] = useState("");
  return (
    <form
      class="input"
      onSubmit={(event) => {
        event.preventDefault();
        if (draft.trim()) act(draft);
      }}
    >
      <label class="wide">
        <span class="hidden">Another prompt of as many tokens</span>
        <input class="another" type="text" dir="auto" maxLength={64000} autocomplete="off" placeholder="another prompt of as many tokens" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />
      </label>
      <button type="submit">Take the head from it</button>
    </form>
  );
}

/** What may come next before and after the change, and the maps of both. */
function Predicted({ app, before, after, attention, head }: OutcomeProps) {
  const shown = after ?? before;
  const place = Math.min(placeOf(app, before), placeOf(app, shown));
  return (
    <section aria-label="Outcome">
      <h2>
        After “<bdi>{pieceText(predicting(shown)[place])}</bdi>” ({place}) {after ? "" : "– no change yet"}
      </h2>
      <Bars next={shown.header.prompt!.next[place].map((one) => (after ? one : { ...one, before: undefined }))} names={["before", "after"]} />
      {attentionsOf(shown, attention) && <Pair app={app} left={before} right={after} attention={attention} head={head} names={["before", "after"]} />}
    </section>
  );
}

/** Whether the weights of an attention are in the page. */
const attentionsOf = (source: Source, attention: Attention) => {
  const same = source.attention(attention.name);
  return same !== undefined && source.whole(same);
};

/** The sentence, to exchange words of it. */
function Exchange({ text, prompt, act }: { text: string; prompt: boolean; act: (text: string) => void }) {
  const [draft, setDraft] = useState(text);
  return (
    <form
      class="input"
      onSubmit={(event) => {
        event.preventDefault();
        act(prompt ? draft : draft.trim());
      }}
    >
      <label class="wide">
        <span class="hidden">The sentence with words exchanged</span>
        <input class="exchanged" type="text" dir="auto" maxLength={prompt ? 64000 : 4000} autocomplete="off" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />
      </label>
      <button type="submit">{prompt ? "Exchange the prompt" : "Exchange words"}</button>
    </form>
  );
}

function Amount({ name, start, low, high, act }: { name: string; start: number; low: number; high: number; act: (value: number) => void }) {
  const [value, setValue] = useState(start);
  return (
    <form
      class="amount"
      onSubmit={(event) => {
        event.preventDefault();
        act(value);
      }}
    >
      <button type="submit">{name}</button>
      <input type="number" aria-label={name} min={low} max={high} step="any" value={value} required onInput={(event) => setValue(event.currentTarget.valueAsNumber)} />
    </form>
  );
}

function CellEdit({ app, attention, add, tokens }: { app: App; attention: Attention; tokens: boolean; add: (edit: Omit<Edit, "attention" | "head">) => void }) {
  const [row, column] = [app.row.value, app.column.value];
  const [, queries, keys] = attention.shape;
  const ready = (tokens ? !app.words.value : app.pieces.value) && row !== null && column !== null && row < queries && column < keys;
  return (
    <>
      <Amount
        name="Set cell"
        start={1}
        low={0}
        high={1}
        act={(weight) => {
          if (ready) add({ kind: "cell", query: row, key: column, weight });
          else if (tokens) app.words.value = false;
          else app.pieces.value = true;
        }}
      />
      {!ready && <span class="hint">{tokens ? "to set a cell, click it" : "to set a cell, show pieces and click it"}</span>}
    </>
  );
}

interface OutcomeProps {
  app: App;
  before: Source;
  after: Source | null;
  attention: Attention;
  head: number;
}

function Outcome({ app, before, after, attention, head }: OutcomeProps) {
  const [original, changed] = [before.header.translation!, after?.header.translation];
  const forced = after?.header.before as { text: string; log_probability: number } | undefined;
  return (
    <section aria-label="Outcome">
      <table class="outcome">
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col">translation</th>
            <th scope="col">log-probability</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">before</th>
            <td dir="auto" class="text-before">
              {original.translation}
            </td>
            <td>{fixed(original.log_probability)}</td>
          </tr>
          <tr>
            <th scope="row">after</th>
            <td dir="auto" class="text-after">
              {changed ? <Compared before={original.translation} after={changed.translation} /> : "–"}
            </td>
            <td>{fixed(changed?.log_probability)}</td>
          </tr>
          <tr>
            <th scope="row">the one before, after the change</th>
            <td dir="auto">{forced ? forced.text : "–"}</td>
            <td class="forced">{forced ? `${fixed(forced.log_probability)} (${fixed(forced.log_probability - original.log_probability)})` : "–"}</td>
          </tr>
        </tbody>
      </table>
      <Pair app={app} left={before} right={after} attention={attention} head={head} names={["before", "after"]} />
    </section>
  );
}

/** The words of `after`; those that are not in `before` are marked. */
function Compared({ before, after }: { before: string; after: string }) {
  const words = new Set(before.split(" "));
  return (
    <>
      {after.split(" ").map((word, i) => (
        <>
          {i > 0 && " "}
          {words.has(word) ? word : <mark>{word}</mark>}
        </>
      ))}
    </>
  );
}

/** One attention of two runs: their difference where their words agree in number, else both. */
function Pair({ app, left, right, attention, head, names }: { app: App; left: Source; right: Source | null; attention: Attention; head: number; names: [string, string] }) {
  const rightAttention = right?.attention(attention.name);
  const byWord = wholeWords(app, left, attention);
  const leftLabels = useMemo(() => labelled(left, attention, head, byWord), [left, attention, head, byWord]);
  const second = useMemo(() => (right && rightAttention ? labelled(right, rightAttention, Math.min(head, rightAttention.heads.length - 1), byWord && wholeWords(app, right, rightAttention)) : null), [right, rightAttention, head, byWord]);
  const apart = second && difference(leftLabels.plane, second.plane);
  return (
    <div class="pair">
      <section>
        <h2>{names[0]}</h2>
        <Matrix name={`${attention.name} ${names[0]}`} {...leftLabels} top={roundTop(peak(leftLabels.plane))} {...chosenIn(app, leftLabels)} />
      </section>
      {second && (
        <section>
          <h2>{names[1]}</h2>
          <Matrix name={`${attention.name} ${names[1]}`} {...second} top={roundTop(peak(second.plane))} />
        </section>
      )}
      {apart && (
        <section>
          <h2>difference</h2>
          <Matrix name={`${attention.name} difference`} {...second} plane={apart} top={roundTop(Math.max(1e-6, ...apart.data.map((x) => Math.abs(x) || 0)))} diverging />
        </section>
      )}
    </div>
  );
}

/** Another sentence, or another model, beside this one. */
function Beside({ app, source, attention, head }: { app: App; source: Source; attention: Attention; head: number }) {
  const text = useMemo(() => app.address.text("beside"), []);
  const model = useMemo(() => app.address.text("other", app.model.value), []);
  const [draft, setDraft] = useState(text.value || app.text.value);
  const [otherSource, setOtherSource] = useState<Source | null>(null);
  // The predictions of two prompts of one model are compared.
  const beside = (other: string) => (source.header.prompt && other === source.header.model ? { beside: source.header.run } : {});
  const show = async () => {
    text.value = draft;
    try {
      const reads = app.languages.includes(model.value);
      const request = reads ? { model: model.value, text: draft, chat: app.chat.value, ...beside(model.value) } : { model: model.value, text: draft, prefix: "" };
      setOtherSource(new Source(await post(app.server, reads ? "api/prompt" : "api/translate", request), app.server));
    } catch (fault) {
      app.error.value = (fault as Error).message;
    }
  };
  useEffect(() => {
    if (text.value) void show();
  }, []);
  const twin = otherSource && (otherSource.attention(attention.name) ?? otherSource.header.attentions.filter((one) => one.kind === attention.kind).at(-1));
  return (
    <details class="beside-runs" open={Boolean(text.value)}>
      <summary>Side by side: another {source.header.prompt ? "prompt" : "sentence"} or model</summary>
      <form
        class="input"
        onSubmit={(event) => {
          event.preventDefault();
          void show();
        }}
      >
        <label>
          Model{" "}
          <select value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
            {[...app.models, ...app.languages].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="wide">
          <span class="hidden">The other sentence</span>
          <input type="text" dir="auto" maxLength={64000} value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />
        </label>
        <button type="submit">Show beside</button>
      </form>
      {otherSource && twin && (
        <>
          <p dir="auto">{otherSource.header.title}</p>
          {otherSource.header.prompt && <Bars next={otherSource.header.prompt.next.at(-1)!} names={["the prompt above", "this one"]} />}
          {source.whole(attention) && otherSource.whole(twin) && <Twins app={app} left={source} right={otherSource} attention={attention} twin={twin} head={head} />}
        </>
      )}
    </details>
  );
}

function Twins({ app, left, right, attention, twin, head }: { app: App; left: Source; right: Source; attention: Attention; twin: Attention; head: number }) {
  const sides = [
    { source: left, of: attention },
    { source: right, of: twin },
  ];
  return (
    <div class="pair">
      {sides.map(({ source, of }) => {
        const labels = labelled(source, of, Math.min(head, of.heads.length - 1), wholeWords(app, source, of));
        return (
          <section key={source.header.run}>
            <h2>
              {source.header.model}: {of.name}
            </h2>
            <Matrix name={`${source.header.model} ${of.name}`} {...labels} top={roundTop(peak(labels.plane))} />
          </section>
        );
      })}
    </div>
  );
}
