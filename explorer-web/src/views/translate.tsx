// Translate: a sentence, its translation word by word, and what each word looked at.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import { css, ink, scale } from "../colour";
import type { Attention, BeamNode, Translation } from "../contract";
import { chosenIn, goldIn, labelled, wholeWords } from "../labels";
import { Matrix, sentenceOf } from "../matrix";
import { fixed, peak, percent, roundTop } from "../numbers";
import { MEAN, Source } from "../source";
import { pieceText } from "../text";
import { AttentionChoice, ModelChoice } from "../choices";
import { FileLines, Pairs } from "./lines";
import { Printed, Terms } from "./printed";

export function Translate() {
  const app = useApp();
  const source = app.scene.value;
  return (
    <>
      {app.live && <Input app={app} />}
      {app.live && <FileLines app={app} />}
      {app.paired && <Pairs app={app} />}
      {source?.header.translation ? (
        <Read app={app} source={source} translation={source.header.translation} />
      ) : (
        app.live && <p class="hint">Type a sentence in the model's source language, or drop a text file here.</p>
      )}
    </>
  );
}

function Input({ app }: { app: App }) {
  const [text, setText] = useState(app.text.value);
  const [terms, setTerms] = useState(app.terms.value);
  const [over, setOver] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => setText(app.text.value), [app.text.value]);
  useEffect(() => {
    if (!app.header && !app.text.value) field.current!.focus({ preventScroll: true }); // nothing else can be done yet
  }, []);
  const take = (file: File | undefined) => file && app.lines.open(file);
  return (
    <form
      class={over ? "input over" : "input"}
      onSubmit={(event) => {
        event.preventDefault();
        app.terms.value = terms;
        app.translate(text);
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        take(event.dataTransfer?.files[0]);
      }}
    >
      <ModelChoice app={app} text={text} />
      <label class="wide">
        <span class="hidden">Sentence</span>
        <input ref={field} class="sentence" type="text" dir="auto" value={text} maxLength={4000} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit">Translate</button>
      <label class="file">
        File{" "}
        <input
          type="file"
          accept="text/plain,.txt"
          onChange={(event) => {
            take(event.currentTarget.files?.[0]);
            event.currentTarget.value = "";
          }}
        />
      </label>
      <Follow app={app} />
      <Terms terms={terms} change={setTerms} />
    </form>
  );
}

const EVERY = 2000; // milliseconds between two looks for a new checkpoint

/** Translate again with each new checkpoint, where the server was started with a run that has some. */
function Follow({ app }: { app: App }) {
  const on = app.follow.value;
  useEffect(() => {
    if (!on) return;
    let timer = 0;
    let over = false;
    const look = async () => {
      try {
        await app.newest();
      } catch (fault) {
        app.error.value = fault instanceof Error ? fault.message : String(fault);
      }
      if (!over) timer = window.setTimeout(look, EVERY);
    };
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [on]);
  if (!app.trains) return null;
  return (
    <label class="check">
      <input type="checkbox" checked={on} onChange={(event) => (app.follow.value = event.currentTarget.checked)} /> follow the training
    </label>
  );
}

interface Reading {
  app: App;
  source: Source;
  translation: Translation;
}

function Read({ app, source, translation }: Reading) {
  const crosses = source.header.attentions.filter((one) => one.kind === "cross");
  const attention = crosses.find((one) => one.name === app.attention.value) ?? crosses[crosses.length - 1];
  const rows = useMemo(() => app.address.text("rows", "written"), []); // labels: the word written, or the one read before
  const read = rows.value === "read";
  const byWord = attention ? wholeWords(app, source, attention) : false;
  const head = attention && app.head.value < attention.heads.length ? app.head.value : MEAN;
  const labels = useMemo(() => attention && labelled(source, attention, head, byWord), [source, attention, head, byWord]);
  const revealed = useReveal(labels ? labels.rows.length : 0, source);
  if (!labels) return <p class="hint">This run has no attention between source and translation.</p>;
  const { row, column, choose } = chosenIn(app, labels);
  const top = roundTop(peak(labels.plane));
  const rowLabels = read ? ["<s>", ...labels.rows.slice(0, -1)] : labels.rows;
  return (
    <>
      <Sentences {...{ app, source, attention, labels, row, top, revealed, choose }} />
      <Printed app={app} translation={translation.translation} />
      {translation.notes.map((note) => (
        <p class="note" key={note}>
          {note}
        </p>
      ))}
      <div class="tools">
        <AttentionChoice app={app} attentions={crosses} now={attention} head={head} />
        <label>
          Rows{" "}
          <select value={rows.value} onChange={(event) => (rows.value = event.currentTarget.value)}>
            <option value="written">word written</option>
            <option value="read">word read before</option>
          </select>
        </label>
      </div>
      <div class="beside">
        <Matrix
          name={`${attention.name} ${head === MEAN ? "mean of heads" : `head ${attention.heads[head]}`}`}
          plane={labels.plane}
          rows={rowLabels}
          columns={labels.columns}
          top={top}
          row={row}
          column={column}
          choose={choose}
          gold={goldIn(source, attention, byWord)}
        />
        <Candidates app={app} source={source} translation={translation} />
      </div>
      {translation.beam && translation.beam.length > 0 && <Beam app={app} nodes={translation.beam} />}
    </>
  );
}

/** How many words are labels: a new translation is written piece by piece, unless the person prefers less motion. */
function useReveal(count: number, source: Source): number {
  const previous = useRef<Source | null>(null);
  const [at, setAt] = useState(count);
  useEffect(() => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (previous.current === source || still) {
      setAt(count);
      return;
    }
    previous.current = source;
    let step = 0;
    setAt(0);
    const timer = setInterval(() => {
      setAt(++step);
      if (step >= count) clearInterval(timer);
    }, Math.min(60, 900 / Math.max(1, count)));
    return () => clearInterval(timer);
  }, [source, count]);
  return at;
}

interface SentencesProps {
  app: App;
  source: Source;
  attention: Attention;
  labels: { plane: { rows: number; columns: number; data: Float32Array }; rows: string[]; columns: string[] };
  row: number | null;
  top: number;
  revealed: number;
  choose: (row: number | null, column: number | null) => void;
}

function Sentences({ app, labels, row, top, revealed, choose }: SentencesProps) {
  const colours = scale(app.theme.value);
  const list = useRef<HTMLOListElement>(null);
  const { plane, rows, columns } = labels;
  const select = (i: number) => {
    const at = Math.min(Math.max(i, 0), plane.rows - 1);
    let best = 0;
    for (let j = 1; j < plane.columns; j++) if (plane.data[at * plane.columns + j] > plane.data[at * plane.columns + best]) best = j;
    choose(at, best);
    app.announcement.value = sentenceOf(labels, at, best);
    list.current?.querySelectorAll("button")[at]?.focus();
  };
  const step = (event: KeyboardEvent, place: number) => {
    const turned = getComputedStyle(event.currentTarget as Element).direction === "rtl" ? -1 : 1;
    const to = { ArrowRight: place + turned, ArrowLeft: place - turned, Home: 0, End: plane.rows - 1 }[event.key];
    if (event.key === "Escape") choose(null, null);
    if (to === undefined) return;
    event.preventDefault();
    select(to);
  };
  return (
    <section class="sentences" aria-label="The sentence and its translation">
      <ol class="words source-words" dir="auto" aria-label="Source">
        {columns.map((word, j) => {
          const weight = row === null ? undefined : plane.data[row * plane.columns + j];
          const lit = weight !== undefined && !Number.isNaN(weight);
          const style = lit ? { backgroundColor: css(colours, weight / top), color: ink(colours, weight / top) } : {};
          return (
            <li key={j} style={style} data-weight={weight === undefined ? undefined : weight.toFixed(4)}>
              <bdi>{word}</bdi>
              <small>{row === null ? " " : percent(weight)}</small>
            </li>
          );
        })}
      </ol>
      <ol class="words written target-words" dir="auto" aria-label="Translation" ref={list}>
        {rows.slice(0, revealed).map((word, i) => (
          <li key={i} class={i === row ? "chosen" : ""}>
            <button
              type="button"
              tabIndex={i === (row ?? 0) ? 0 : -1}
              aria-pressed={i === row}
              onClick={() => (i === row ? choose(null, null) : select(i))}
              onKeyDown={(event) => step(event, i)}
            >
              <bdi>{word}</bdi>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Candidates({ app, source, translation }: Reading) {
  const next = source.header.alternatives as { piece: string; probability: number; prefix: string }[][] | undefined;
  const place = app.row.value;
  const target = source.header.sequences.find((one) => one.name === "target");
  const alternatives = place === null ? undefined : next?.[place];
  return (
    <div class="candidates">
      {translation.candidates.length > 1 && (
        <section aria-label="Other translations">
          <h2>Other translations</h2>
          <table>
            <thead>
              <tr>
                <th scope="col">score</th>
                <th scope="col">translation</th>
              </tr>
            </thead>
            <tbody>
              {translation.candidates.map((one) => (
                <tr key={one.text} class={one.text === translation.translation ? "chosen" : ""}>
                  <td>{fixed(one.score)}</td>
                  <td dir="auto">{one.text}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {alternatives && target && (
        <section aria-label="Words that could stand here">
          <h2>Instead of “{pieceText(target.tokens[place!])}”</h2>
          <ul class="others">
            {alternatives.map((one) => (
              <li key={one.piece}>
                <button type="button" disabled={!app.live} onClick={() => app.translate(translation.text, one.prefix)} title="Translate with this word here">
                  <bdi>{pieceText(one.piece)}</bdi> <small>{percent(one.probability)}</small>
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
      {app.live && app.prefix.value && (
        <p class="note">
          begins with “<bdi>{app.prefix.value}</bdi>”{" "}
          <button type="button" onClick={() => app.translate(translation.text)}>
            free again
          </button>
        </p>
      )}
    </div>
  );
}

/** The tree of a beam search: what was kept and what was dropped, with scores. A click continues from there. */
function Beam({ app, nodes }: { app: App; nodes: BeamNode[] }) {
  const open = useMemo(() => app.address.flag("tree"), []);
  const children = useMemo(() => {
    const out = new Map<number, number[]>();
    nodes.forEach(({ parent }, index) => out.set(parent, [...(out.get(parent) ?? []), index]));
    return out;
  }, [nodes]);
  const node = (index: number) => {
    const { piece, score, kept, prefix } = nodes[index];
    return (
      <button
        type="button"
        class={kept ? "kept" : ""}
        disabled={!app.live}
        title={`${kept ? "kept" : "dropped"}; translate from here: ${prefix}`}
        onClick={() => app.translate(app.text.value, prefix)}
      >
        <bdi>{pieceText(piece)}</bdi> <small>{fixed(score, 2)}</small>
      </button>
    );
  };
  const branch = (parent: number) => {
    const all = children.get(parent) ?? [];
    const dropped = all.filter((index) => !nodes[index].kept);
    return (
      <ul>
        {all
          .filter((index) => nodes[index].kept)
          .map((index) => (
            <li key={index}>
              {node(index)}
              {children.has(index) && branch(index)}
            </li>
          ))}
        {dropped.length > 0 && <li class="hint">dropped: {dropped.map(node)}</li>}
      </ul>
    );
  };
  return (
    <details class="beam" open={open.value} onToggle={(event) => (open.value = (event.currentTarget as HTMLDetailsElement).open)}>
      <summary>Tree of the search</summary>
      <p class="hint">Beginnings and their log-probabilities. A click translates from there.</p>
      <div class="sheet" tabIndex={0} role="region" aria-label="Tree of the search">
        {open.value && branch(-1)}
      </div>
    </details>
  );
}
