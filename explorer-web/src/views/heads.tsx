// Heads: every layer and head as a small map, sorted by what it does; one of them large.

import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { App, useApp } from "../app";
import { ToneChoice } from "../choices";
import type { Attention } from "../contract";
import type { Gold } from "../drawing";
import { binNames, binned, chosenIn, goldIn, Labelled, labelled, wholeWords } from "../labels";
import { Matrix } from "../matrix";
import { fixed, peak, Plane, roundTop } from "../numbers";
import { raster } from "../raster";
import { ChosenRow } from "../row";
import { Export } from "../sheet";
import { MEAN, Source } from "../source";
import { FoldedTable } from "../table";
import { pyramid } from "../tiles";

const EXPLAINED: Record<string, string> = {
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
  const chosenSort = useMemo(() => app.address.text("sort", "layer"), []);
  const kind = useMemo(() => app.address.text("kind", "all"), []);
  const means = useMemo(() => app.address.flag("means"), []);
  const grid = useRef<HTMLUListElement>(null);
  if (!source) return <p class="hint">Translate a sentence first.</p>;
  const attentions = source.header.attentions.filter((one) => kind.value === "all" || one.kind === kind.value);
  const measures = [...new Set(source.header.attentions.flatMap((one) => Object.keys(one.measures)))];
  const sorts = ["layer", ...measures];
  const sort = sorts.includes(chosenSort.value) ? chosenSort.value : "layer";
  const cells = order(attentions, sort, means.value);
  const current = attentions.find((one) => one.name === app.attention.value);
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
        <ToneChoice app={app} />
        <span class="hint">
          {EXPLAINED[sort]}
          {means.value && sort !== "layer" && "; the mean over the heads"}
          {sort !== "layer" && sampled && `; from ${sampled.sampled} of ${sampled.shape[1]} queries`}
        </span>
        <Export name="heads" tiles={() => tilesOf(grid.current!)} across={8} width={152} height={152} />
      </div>
      {current && source.drawn(current) && <Enlarged app={app} source={source} attention={current} />}
      {current && !source.whole(current) && (
        <p>
          <button type="button" onClick={() => (app.view.value = "map")}>
            Open {current.name} in the map
          </button>
        </p>
      )}
      <Grid app={app} source={source} cells={cells} sort={sort} list={grid} />
      {measures.length > 0 && (
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
      <Rollout app={app} source={source} />
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
  const all = attention.measures[sort];
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
}

/** The small maps of a grid with their names. */
const tilesOf = (list: HTMLUListElement) =>
  Array.from(list.children, (item) => ({
    canvas: item.querySelector("canvas")!,
    text: Array.from(item.querySelectorAll("span, small"), (line) => line.textContent!.trim()),
  }));

function Grid({ app, source, cells, sort, list }: GridProps) {
  const step = (event: KeyboardEvent, place: number) => {
    const across = Math.max(1, Math.round(list.current!.clientWidth / (list.current!.firstElementChild as HTMLElement).offsetWidth));
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place + across, ArrowUp: place - across, Home: 0, End: cells.length - 1 }[event.key];
    const button = to === undefined ? undefined : list.current!.querySelectorAll("button")[to];
    if (!button) return;
    event.preventDefault();
    button.focus();
  };
  return (
    <ul class="grid" ref={list} aria-label="Heads">
      {cells.map((cell, place) => {
        const on = app.attention.value === cell.attention.name && app.head.value === cell.place;
        const value = measure(cell, sort);
        return (
          <li key={name(cell)}>
            <button
              type="button"
              class={on ? "chosen" : ""}
              aria-pressed={on}
              onKeyDown={(event) => step(event, place)}
              onClick={() => {
                app.attention.value = cell.attention.name;
                app.head.value = cell.place;
                app.row.value = app.column.value = null;
                app.announcement.value = name(cell);
              }}
            >
              <Thumbnail app={app} source={source} cell={cell} />
              <span>{name(cell)}</span>
              <small>{value === undefined ? " " : fixed(value)}</small>
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
  useEffect(() => {
    let current = true;
    picture(source, attention, place).then(
      (plane) => current && raster(canvas.current!, plane, roundTop(peak(plane)), theme, tone),
      (fault: Error) => (app.error.value = fault.message),
    );
    return () => {
      current = false;
    };
  }, [source, attention, place, theme, tone]);
  return <canvas ref={canvas} aria-hidden="true" />;
}

/** The small map of a head; of an attention that is sent as tiles alone, the last tile. */
async function picture(source: Source, attention: Attention, place: number): Promise<Plane> {
  if (source.drawn(attention)) return source.overview(attention, place);
  const built = await pyramid(source, attention, place);
  return (await built.tile(built.levels.length - 1, 0, 0, "max", new AbortController().signal)).plane;
}

function Enlarged({ app, source, attention }: { app: App; source: Source; attention: Attention }) {
  const head = app.head.value < attention.heads.length ? app.head.value : MEAN;
  const byWord = wholeWords(app, source, attention);
  const labels = useMemo(() => {
    if (source.whole(attention)) return labelled(source, attention, head, byWord);
    const plane = source.overview(attention, head);
    const starts = binned(plane, attention);
    return { plane, rows: [], columns: [], starts, spoken: binNames(source, attention, starts) };
  }, [source, attention, head, byWord]);
  const gold = useMemo(() => goldIn(source, attention, byWord), [source, attention, byWord]);
  const title = name({ attention, place: head });
  return (
    <section>
      <h2>{title}</h2>
      <Matrix name={title} {...labels} top={roundTop(peak(labels.plane))} {...chosenIn(app, labels)} gold={gold} tone={app.tone} />
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

/** Attention rollout through the layers of one stack of self-attention. */
function Rollout({ app, source }: { app: App; source: Source }) {
  const stacks = useMemo(() => {
    const stacks = new Map<string, Attention[]>();
    for (const attention of source.header.attentions)
      if (attention.kind !== "cross" && attention.shape[1] === attention.shape[2] && source.whole(attention)) {
        const stack = `${attention.rows}/${attention.columns}`;
        stacks.set(stack, [...(stacks.get(stack) ?? []), attention]);
      }
    return [...stacks.values()].filter((stack) => stack.length > 1);
  }, [source]);
  if (!stacks.length) return null;
  return (
    <details class="rollout">
      <summary>Attention rollout: the layers of a stack, multiplied</summary>
      {stacks.map((stack) => (
        <Rolled key={stack[0].name} app={app} source={source} stack={stack} />
      ))}
    </details>
  );
}

function Rolled({ app, source, stack }: { app: App; source: Source; stack: Attention[] }) {
  const [bottom] = stack;
  const byWord = wholeWords(app, source, bottom);
  const labels = useMemo(() => {
    const plane = source.rollout(stack);
    const { rows, columns } = labelled(source, bottom, MEAN, false);
    return { plane, rows, columns };
  }, [source, stack, byWord]);
  return <Matrix name={`rollout of ${stack.length} layers from ${bottom.name}`} {...labels} top={roundTop(peak(labels.plane))} />;
}
