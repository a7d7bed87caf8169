// Heads: every layer and head as a small map, sorted by what it does; one of them large.

import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import type { Attention } from "../contract";
import type { Gold } from "../drawing";
import { binNames, binned, chosenIn, goldIn, headLabel, Labelled, labelled, wholeWords } from "../labels";
import { MovedChoice, ToneChoice, UnitChoice } from "../choices";
import { Matrix } from "../matrix";
import { fixed, peak, Plane, roundTop } from "../numbers";
import { fitting, raster } from "../raster";
import { ChosenRow } from "../row";
import { Export } from "../sheet";
import { MEAN, Source } from "../source";
import { FoldedTable } from "../table";
import { placed } from "../text";

export const EXPLAINED: Record<string, string> = {
  layer: "the order of the layers",
  entropy: "among how many keys a query spreads its weights, in nats",
  distance: "how far from its own position a query reads, in positions",
  diagonal: "the weight of the key at the query's own position",
  previous: "the weight of the key before the query's position",
  sink: "the weight of the first key",
  copy: "the weight of other keys with the query's token",
  agreement: "1 − alignment error rate of the links to the most read words, against the gold links",
  "agreement, word read": "the same, from the rows that have just read the word",
  induction: "the weight of keys that follow a key with the query's token",
  prefix: "the same before the query, over queries whose token occurred before",
};

interface Cell {
  attention: Attention;
  place: number; // of the head, or MEAN
}

export function Heads() {
  const app = useApp();
  const source = app.scene.value;
  const arranged = useMemo(() => app.address.flag("arranged"), []);
  const chosenSort = useMemo(() => app.address.text("sort", "layer"), []);
  const kind = useMemo(() => app.address.text("kind", "all"), []);
  const means = useMemo(() => app.address.flag("means"), []);
  const grid = useRef<HTMLUListElement>(null);
  if (!source) return <p class="hint">{app.prompts ? "Run a prompt first." : "Translate a sentence first."}</p>;
  return <Shown key={source.header.run} {...{ app, source, arranged, chosenSort, kind, means, grid }} />;
}

interface ShownProps {
  app: App;
  source: Source;
  arranged: Signal<boolean>;
  chosenSort: Signal<string>;
  kind: Signal<string>;
  means: Signal<boolean>;
  grid: { current: HTMLUListElement | null };
}

function Shown({ app, source, arranged, chosenSort, kind, means, grid }: ShownProps) {
  const attentions = source.header.attentions.filter((one) => kind.value === "all" || one.kind === kind.value);
  const [measured, setMeasured] = useState(0); // attentions whose measures are known
  const { attentions: all } = source.header;
  const complete = all.every((one) => one.measures);
  const measures = [...new Set(all.flatMap((one) => Object.keys(one.measures ?? {})))];
  const sorts = ["layer", ...(complete ? measures : [...new Set([...Object.keys(EXPLAINED).filter((name) => name !== "layer" && !name.startsWith("agreement")), ...measures])])];
  const sort = sorts.includes(chosenSort.value) ? chosenSort.value : "layer";
  const cells = order(attentions, sort, means.value);
  const current = attentions.find((one) => one.name === app.attention.value);
  const needed = sort !== "layer" && !complete;
  useEffect(() => {
    if (!needed) return;
    let current = true;
    const load = async () => {
      for (const attention of all) {
        if (!current) return;
        await source.measures(attention);
        setMeasured((count) => count + 1);
      }
    };
    load().catch((fault: Error) => (app.error.value = fault.message));
    return () => {
      current = false;
    };
  }, [source, needed]);
  const inRows = sort === "layer" && arranged.value && !means.value;
  const sampled = attentions.find((one) => one.sampled);
  return (
    <>
      <div class="tools">
        <label>
          Sort by{" "}
          <select value={sort} onChange={(event) => (chosenSort.value = event.currentTarget.value)}>
            {sorts.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Show{" "}
          <select value={kind.value} onChange={(event) => (kind.value = event.currentTarget.value)}>
            {["all", ...new Set(source.header.attentions.map((one) => one.kind))].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={means.value} onChange={(event) => (means.value = event.currentTarget.checked)} /> means of layers
        </label>
        {sort === "layer" && !means.value && (
          <label class="check">
            <input type="checkbox" checked={arranged.value} onChange={(event) => (arranged.value = event.currentTarget.checked)} /> a row for each layer
          </label>
        )}
        <ToneChoice app={app} />
        {source.header.prompt && <UnitChoice app={app} />}
        {source.header.prompt && <MovedChoice app={app} />}
        {needed && (
          <span class="busy" role="status">
            measuring {Math.min(measured, all.length)} of {all.length} layers …
          </span>
        )}
        <span class="hint">
          {EXPLAINED[sort]}
          {means.value && sort !== "layer" && "; the mean over the heads"}
          {sort === "layer" && !all.every((one) => source.drawn(one)) && "; small maps of long texts show one row of each bin, the large one all rows"}
          {sort !== "layer" && sampled && `; from ${sampled.sampled} of ${sampled.shape[1]} queries`}
        </span>
        <Export name="heads" tiles={() => tilesOf(grid.current!)} across={8} width={152} height={152} />
      </div>
      {current && <Enlarged key={`${current.name}/${app.head.value}`} app={app} source={source} attention={current} />}
      {current && !source.whole(current) && (
        <p>
          <button type="button" onClick={() => (app.view.value = "map")}>
            Open {current.name} in the map
          </button>
        </p>
      )}
      <Grid app={app} source={source} cells={cells} sort={sort} list={grid} across={inRows ? Math.max(...attentions.map((one) => one.heads.length)) : 0} />
      {complete && measures.length > 0 && (
        <FoldedTable
          summary="Table of measures"
          label="Measures of the heads"
          corner="head"
          columns={measures}
          titles={measures.map((one) => EXPLAINED[one])}
          rows={cells.map(name)}
          cell={(i, j) => fixed(measure(cells[i], measures[j]))}
        />
      )}
      <Rollouts app={app} source={source} />
    </>
  );
}

function order(attentions: Attention[], sort: string, means: boolean): Cell[] {
  const cells = attentions.flatMap((attention) => (means ? [{ attention, place: MEAN }] : attention.heads.map((_, place) => ({ attention, place }))));
  if (sort === "layer") return cells;
  return cells.sort((left, right) => (measure(right, sort) ?? -Infinity) - (measure(left, sort) ?? -Infinity));
}

/** A measure of a head, or its mean over the heads. */
function measure({ attention, place }: Cell, sort: string): number | null | undefined {
  const all = attention.measures?.[sort];
  if (!all || place !== MEAN) return all?.[place];
  const values = all.filter((x) => x !== null);
  return values.length ? values.reduce((sum, x) => sum + x, 0) / values.length : null;
}

const name = ({ attention, place }: Cell) => (place === MEAN ? `${attention.name} mean of heads` : `${attention.name} head ${attention.heads[place]}`);

interface GridProps {
  app: App;
  source: Source;
  cells: Cell[];
  sort: string;
  list: { current: HTMLUListElement | null };
  across: number; // columns, a row for each layer; 0: as many as fit
}

/** The small maps of a grid with their names. */
const tilesOf = (list: HTMLUListElement) =>
  Array.from(list.children, (item) => ({
    canvas: item.querySelector("canvas")!,
    text: Array.from(item.querySelectorAll("span, small"), (line) => line.textContent!.trim()),
  }));

function Grid({ app, source, cells, sort, list, across: columns }: GridProps) {
  const chosen = cells.findIndex((cell) => app.attention.value === cell.attention.name && app.head.value === cell.place);
  const [reached, setReached] = useState(Math.max(0, chosen)); // the one button of the grid that Tab leads to
  const entry = Math.min(reached, cells.length - 1);
  const step = (event: KeyboardEvent, place: number) => {
    const across = Math.max(1, Math.round(list.current!.clientWidth / (list.current!.firstElementChild as HTMLElement).offsetWidth));
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place + across, ArrowUp: place - across, Home: 0, End: cells.length - 1 }[event.key];
    const button = to === undefined ? undefined : list.current!.querySelectorAll("button")[to];
    if (!button) return;
    event.preventDefault();
    button.focus();
  };
  return (
    <ul class={columns ? "grid rows" : "grid"} ref={list} aria-label="Heads" style={columns ? { gridTemplateColumns: `repeat(${columns}, minmax(2.6rem, 1fr))` } : undefined}>
      {cells.map((cell, place) => {
        const on = app.attention.value === cell.attention.name && app.head.value === cell.place;
        const value = measure(cell, sort);
        return (
          <li key={name(cell)}>
            <button
              type="button"
              class={on ? "chosen" : ""}
              aria-pressed={on}
              tabIndex={place === entry ? 0 : -1}
              onFocus={() => setReached(place)}
              title={name(cell)}
              onKeyDown={(event) => step(event, place)}
              onClick={() => {
                app.attention.value = cell.attention.name;
                app.head.value = cell.place;
                app.row.value = app.column.value = null;
                app.announcement.value = name(cell);
              }}
            >
              <Thumbnail app={app} source={source} cell={cell} />
              <span>
                {headLabel(cell.attention, cell.place)} {value !== undefined && <small>{fixed(value)}</small>}
              </span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function Thumbnail({ app, source, cell }: { app: App; source: Source; cell: Cell }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = app.theme.value;
  const { tone } = app;
  const { attention, place } = cell;
  // A head of a long text is drawn when it comes into view. A server computes it then, and stops if it leaves the view before.
  useEffect(() => {
    let request: AbortController | null = null;
    let drawn = false;
    const paint = async (abort: AbortController) => {
      try {
        const plane = await source.picture(attention, place, false, abort.signal);
        if (abort.signal.aborted) return;
        const top = roundTop(peak(plane));
        raster(canvas.current!, plane, top, theme, tone ?? fitting([plane], top));
        canvas.current!.dataset.drawn = "yes";
        drawn = true;
      } catch (fault) {
        if (!abort.signal.aborted) app.error.value = (fault as Error).message;
      }
    };
    if (source.drawn(attention)) {
      void paint((request = new AbortController()));
      return () => request?.abort();
    }
    const watcher = new IntersectionObserver(
      (entries) => {
        const visible = entries.at(-1)!.isIntersecting;
        if (visible && !drawn && !request) void paint((request = new AbortController()));
        if (!visible && !drawn) {
          request?.abort();
          request = null;
        }
      },
      { rootMargin: "100px" },
    );
    watcher.observe(canvas.current!);
    return () => {
      watcher.disconnect();
      request?.abort();
    };
  }, [source, attention, place, theme, tone]);
  return <canvas ref={canvas} aria-hidden="true" />;
}

function Enlarged({ app, source, attention }: { app: App; source: Source; attention: Attention }) {
  const head = app.head.value < attention.heads.length ? app.head.value : MEAN;
  const byWord = wholeWords(app, source, attention);
  const [picture, setPicture] = useState<Plane | null>(null);
  useEffect(() => {
    if (source.whole(attention)) return;
    const abort = new AbortController();
    source.picture(attention, head, true, abort.signal).then(setPicture, (fault: Error) => abort.signal.aborted || (app.error.value = fault.message));
    return () => abort.abort();
  }, [source, attention, head]);
  const labels = useMemo(() => {
    if (source.whole(attention)) return labelled(source, attention, head, byWord);
    if (!picture) return null;
    const starts = binned(picture, attention);
    return { plane: picture, rows: [], columns: [], starts, spoken: binNames(source, attention, starts) };
  }, [source, attention, head, byWord, picture]);
  const gold = useMemo(() => goldIn(source, attention, byWord), [source, attention, byWord]);
  const title = name({ attention, place: head });
  if (!labels) return <p class="busy">drawing {title} …</p>;
  return (
    <section>
      <h2>{title}</h2>
      {!source.whole(attention) && <p class="hint">{cellsOf(labels.plane, attention)}</p>}
      <Matrix name={title} {...labels} top={roundTop(peak(labels.plane))} {...chosenIn(app, labels)} gold={gold} tone={app.tone ?? fitting([labels.plane], roundTop(peak(labels.plane)))} />
      {source.header.translation && source.header.run !== null && app.pair.value === null && attention.kind === "cross" && byWord && (
        <Linking app={app} shown={labels} gold={gold} />
      )}
      {!source.whole(attention) && (
        <>
          <WholeNumber name="Row" most={attention.shape[1] - 1} chosen={app.row} />
          <ChosenRow app={app} source={source} attention={attention} head={head} />
        </>
      )}
    </section>
  );
}

/** A button that makes the chosen cell a gold link, or no longer one. */
function Linking({ app, shown, gold }: { app: App; shown: Labelled; gold: Gold | undefined }) {
  const { row, column } = chosenIn(app, shown);
  const ends = [shown.rows.length - 1, shown.columns.length - 1]; // the ends, which are no words
  const able = row !== null && column !== null && row < ends[0] && column < ends[1];
  const linked = gold?.has(`${row},${column}`);
  return (
    <p class="tools">
      <button type="button" disabled={!able} onClick={() => app.toggleLink(row!, column!)}>
        {linked ? "Remove the gold link" : "Make it a gold link"}
      </button>
      <span class="hint">{gold ? "Sort by agreement to compare the heads with the gold links." : "Choose a cell whose words belong together: heads are then compared with such links."}</span>
    </p>
  );
}

/** A place that is typed. */
function WholeNumber({ name, most, chosen }: { name: string; most: number; chosen: Signal<number | null> }) {
  const take = (place: number) => (chosen.value = Number.isInteger(place) && place >= 0 && place <= most ? place : null);
  return (
    <label>
      {name} <input type="number" min={0} max={most} value={chosen.value ?? ""} onInput={(event) => take(event.currentTarget.valueAsNumber)} />
    </label>
  );
}

/** "A cell is the maximum of 16 × 16 tokens." */
function cellsOf({ rows, columns }: Plane, { shape: [, queries, keys] }: Attention): string {
  const across = (tokens: number, cells: number) => Number((tokens / cells).toPrecision(3));
  return `${queries} × ${keys} tokens: a cell is the maximum of ${across(queries, rows)} × ${across(keys, columns)}.`;
}

/** Attention rollout through the layers of each stack of self-attention. */
function Rollouts({ app, source }: { app: App; source: Source }) {
  const open = useMemo(() => app.address.flag("rollout"), []);
  const { rollouts } = source.header;
  if (!rollouts.length) return null;
  return (
    <details class="rollout" open={open.value} onToggle={(event) => (open.value = (event.currentTarget as HTMLDetailsElement).open)}>
      <summary>Attention rollout: the layers of a stack, multiplied</summary>
      {open.value && rollouts.map((_, stack) => <Rolled key={stack} app={app} source={source} stack={stack} />)}
    </details>
  );
}

function Rolled({ app, source, stack }: { app: App; source: Source; stack: number }) {
  const { of, buffer, objection } = source.header.rollouts[stack];
  const bottom = source.attention(of[0])!;
  const title = `rollout of ${of.length} layers from ${of[0]}`;
  const labels = useMemo(() => {
    if (buffer === undefined) return null;
    const plane = source.rollout(buffer, bottom.shape[1]);
    const { rows, columns } = labelled(source, bottom, MEAN, false);
    return { plane, rows, columns };
  }, [source, buffer]);
  if (labels) return <Matrix name={title} {...labels} top={roundTop(peak(labels.plane))} />;
  if (objection) return <p class="hint">There is no rollout here: {objection}.</p>;
  return <RolledRow app={app} source={source} stack={stack} title={title} />;
}

/** The rollout to one token of a long text. */
function RolledRow({ app, source, stack, title }: { app: App; source: Source; stack: number; title: string }) {
  const bottom = source.attention(source.header.rollouts[stack].of[0])!;
  const { tokens } = source.header.sequences[bottom.columns];
  const [row, setRow] = useState<Float32Array | null>(null);
  const query = app.row.value ?? bottom.shape[1] - 1;
  useEffect(() => {
    setRow(null);
    const abort = new AbortController();
    source.rolloutRow(stack, query, abort.signal).then(setRow, (fault: Error) => abort.signal.aborted || (app.error.value = fault.message));
    return () => abort.abort();
  }, [source, stack, query]);
  const largest = row && Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, 12);
  return (
    <>
      <WholeNumber name="Row" most={bottom.shape[1] - 1} chosen={app.row} />
      {!largest && <p class="busy">computing the {title} …</p>}
      {largest && (
        <table>
          <caption>
            {title}, to <bdi>{placed(tokens, query)}</bdi>
          </caption>
          <thead>
            <tr>
              <th scope="col">token</th>
              <th scope="col">share</th>
            </tr>
          </thead>
          <tbody>
            {largest.map((j) => (
              <tr key={j}>
                <td dir="auto">{placed(tokens, j)}</td>
                <td>{fixed(row![j], 4)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
