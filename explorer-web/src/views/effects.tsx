// Effects: every head in a grid of layers and heads, coloured by what it does to the prediction, or by what it reads.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import { css, ink, scale } from "../colour";
import type { Attention, Measures } from "../contract";
import { headLabel } from "../labels";
import { fixed, percent } from "../numbers";
import { answered } from "../server";
import type { Source } from "../source";
import { FoldedTable } from "../table";
import { pieceText, placed } from "../text";
import { EXPLAINED } from "./heads";
import { placeOf, predicting } from "./prompt";

/** A number for each head, by the name of its attention. */
type Grid = Record<string, (number | null)[]>;

interface Effects {
  base: number;
  rows: [string, number, number | null][];
  parts: number;
  token: string;
  minus: string | null;
}

interface Direct {
  token: string;
  logit: number;
  heads: Grid;
  objection?: string;
}

const BY: Record<string, string> = {
  estimate: "effect, estimated",
  run: "effect, measured",
  direct: "direct effect on the logit",
  weight: "weight of a key",
  moved: "what is moved from a key",
};

export function Effects() {
  const app = useApp();
  const source = app.scene.value;
  if (!source?.header.prompt) return <p class="hint">Run a prompt first.</p>;
  return <Coloured key={source.header.run} app={app} source={source} />;
}

function Coloured({ app, source }: { app: App; source: Source }) {
  const prompt = source.header.prompt!;
  const { attentions } = source.header;
  // Rows and columns of an encoder-decoder are those of its cross attentions.
  const read = attentions.find((one) => one.kind === "cross") ?? attentions[0];
  const { tokens } = source.header.sequences[read.columns];
  const rows = predicting(source);
  const place = placeOf(app, source);
  const next = prompt.next[place];
  const by = useMemo(() => app.address.text("by", "estimate"), []);
  const token = useMemo(() => app.address.text("token"), []);
  const minus = useMemo(() => app.address.text("minus"), []);
  const other = useMemo(() => app.address.text("patch"), []);
  const [measures, setMeasures] = useState<string[]>([]);
  const [grid, setGrid] = useState<Grid | null>(null);
  const [said, setSaid] = useState("");
  const [progress, setProgress] = useState("");
  const key = Math.min(app.column.value ?? 0, tokens.length - 1);
  const chosenToken = token.value || pieceText(next[0].token);
  const needs = by.value === "weight" || by.value === "moved" ? `${place}/${key}` : by.value in BY ? `${place}/${chosenToken}/${minus.value}/${other.value}` : "";

  useEffect(() => {
    source.measures(attentions[0]).then((all) => setMeasures(Object.keys(all)), () => {});
  }, [source]);

  useEffect(() => {
    const over = new AbortController();
    const { signal } = over;
    const asked = <T,>(what: string, content: object) => answered<T>(app.server, `api/${what}`, { run: source.header.run, ...content }, signal);
    const named = (text: string) => next.find((one) => pieceText(one.token) === text)?.id ?? (text.startsWith(" ") ? text : ` ${text}`);
    const metric = () => ({ token: named(chosenToken), ...(minus.value ? { minus: named(minus.value) } : {}), place, ...(other.value ? { text: other.value } : {}) });
    const load = async () => {
      setGrid(null);
      setSaid("");
      if (by.value === "estimate" || by.value === "run") {
        const cells: Grid = Object.fromEntries(attentions.map((one) => [one.name, one.heads.map(() => null)]));
        for (let part = 0, parts = 1; part < parts && !signal.aborted; part++) {
          const answer = await asked<Effects>("effects", { ...metric(), method: by.value === "run" ? "run" : "gradient", part });
          parts = answer.parts;
          for (const [name, head, effect] of answer.rows) cells[name][head] = effect;
          setGrid({ ...cells });
          const subject = answer.minus === null ? `log-probability of “${pieceText(answer.token)}”` : `logit of “${pieceText(answer.token)}” minus “${pieceText(answer.minus)}”`;
          setSaid(`${subject}: ${fixed(answer.base)}; with a head ${other.value ? "from the other prompt" : "switched off"}, it changes by the number of the head`);
          setProgress(parts > 1 && part + 1 < parts ? `${part + 1} of ${parts} passes` : "");
        }
      } else if (by.value === "direct") {
        const answer = await asked<Direct>("direct", { token: named(chosenToken), place });
        if (answer.objection) throw new Error(`the logit is not split: ${answer.objection}`);
        setGrid(answer.heads);
        setSaid(`logit of “${pieceText(answer.token)}”: ${fixed(answer.logit)}; a head adds its number directly, through the final norm and the unembedding`);
      } else if (by.value === "weight" || by.value === "moved") {
        if (prompt.moved !== (by.value === "moved")) {
          await app.moved(by.value === "moved"); // shows another run, and this view anew
          return;
        }
        const cells = await asked<Grid>("cell", { query: place, key });
        setGrid(Object.fromEntries(attentions.filter((one) => one.rows === read.rows && one.columns === read.columns).map(({ name }) => [name, cells[name] ?? []])));
        setSaid(`what ${placed(rows, place)} ${by.value === "moved" ? "gets from" : "reads from"} ${placed(tokens, key)}, as a share`);
      } else {
        const cells: Grid = {};
        for (const [number, attention] of attentions.entries()) {
          const all: Measures = await source.measures(attention);
          cells[attention.name] = all[by.value] ?? [];
          setGrid({ ...cells });
          setProgress(number + 1 < attentions.length ? `${number + 1} of ${attentions.length} layers` : "");
          if (signal.aborted) return;
        }
        setSaid(EXPLAINED[by.value] ?? "");
      }
    };
    setProgress("computing");
    load().then(
      () => !signal.aborted && setProgress(""),
      (fault: Error) => {
        if (signal.aborted) return;
        setProgress("");
        setSaid("");
        app.error.value = fault.message;
      },
    );
    return () => over.abort();
  }, [source, by.value, needs]);

  const options = { ...BY, ...Object.fromEntries(measures.map((name) => [name, name])) };
  const ofPrediction = ["estimate", "run", "direct"].includes(by.value);
  return (
    <>
      <div class="tools">
        <label>
          Colour by{" "}
          <select value={by.value} onChange={(event) => (by.value = event.currentTarget.value)}>
            {Object.entries(options).map(([name, text]) => (
              <option key={name} value={name}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <label>
          After{" "}
          <select value={place} onChange={(event) => (app.row.value = Number(event.currentTarget.value))}>
            {rows.map((_, i) => (
              <option key={i} value={i}>
                {placed(rows, i)}
              </option>
            ))}
          </select>
        </label>
        {ofPrediction ? (
          <>
            <TokenField name="the token" value={chosenToken} next={next.map((one) => pieceText(one.token))} act={(text) => (token.value = text)} />
            {by.value !== "direct" && <TokenField name="minus" value={minus.value} next={next.map((one) => pieceText(one.token))} act={(text) => (minus.value = text)} />}
          </>
        ) : (
          (by.value === "weight" || by.value === "moved") && (
            <label>
              Key{" "}
              <select value={key} onChange={(event) => (app.column.value = Number(event.currentTarget.value))}>
                {tokens.map((_, j) => (
                  <option key={j} value={j}>
                    {placed(tokens, j)}
                  </option>
                ))}
              </select>
            </label>
          )
        )}
      </div>
      {(by.value === "estimate" || by.value === "run") && <Patch value={other.value} act={(text) => (other.value = text)} />}
      <p class="busy" role="status">
        {progress && `${progress} …`}
      </p>
      {grid && <HeadGrid app={app} attentions={attentions} grid={grid} signed={ofPrediction} />}
      <p class="hint">{said}</p>
    </>
  );
}

/** A token that is typed, or chosen among those that may come next. It counts when the field is left or Enter is pressed. */
function TokenField({ name, value, next, act }: { name: string; value: string; next: string[]; act: (text: string) => void }) {
  const list = `tokens-${name.replaceAll(" ", "-")}`;
  return (
    <label>
      {name}{" "}
      <input class="token" type="text" dir="auto" list={list} maxLength={200} autocomplete="off" value={value} placeholder={name === "minus" ? "none" : ""} onChange={(event) => act(event.currentTarget.value)} />
      <datalist id={list}>
        {next.map((text) => (
          <option key={text} value={text} />
        ))}
      </datalist>
    </label>
  );
}

/** Another prompt of the same length, whose heads are put in place. */
function Patch({ value, act }: { value: string; act: (text: string) => void }) {
  const [draft, setDraft] = useState(value);
  return (
    <form
      class="input"
      onSubmit={(event) => {
        event.preventDefault();
        act(draft);
      }}
    >
      <label class="wide">
        <span class="hint">Switch heads off, or take them from another prompt of as many tokens:</span>
        <input type="text" dir="auto" maxLength={64000} autocomplete="off" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />
      </label>
      <button type="submit">Use</button>
    </form>
  );
}

/** Layers down, heads across. Enter or a click opens a head. */
function HeadGrid({ app, attentions, grid, signed }: { app: App; attentions: Attention[]; grid: Grid; signed: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const numbers = Object.values(grid).flat().filter((x): x is number => x !== null && !Number.isNaN(x));
  const largest = Math.max(1e-9, ...numbers.map(Math.abs));
  const diverging = signed || numbers.some((x) => x < 0);
  const colours = scale(app.theme.value, diverging);
  const share = (x: number) => (diverging ? 0.5 + x / largest / 2 : x / largest);
  const across = Math.max(...attentions.map((one) => one.heads.length));
  const order = useMemo(() => {
    const cells = attentions.flatMap((attention) => attention.heads.map((_, place) => ({ attention, place, value: grid[attention.name]?.[place] ?? null })));
    return cells.filter((cell) => cell.value !== null).sort((a, b) => Math.abs(b.value!) - Math.abs(a.value!));
  }, [grid]);
  const [largestCell] = order;
  const [at, setAt] = useState<string | null>(null);
  const current = at ?? (largestCell ? `${largestCell.attention.name}/${largestCell.place}` : `${attentions[0].name}/0`);
  const open = (attention: Attention, place: number) => {
    app.attention.value = attention.name;
    app.head.value = place;
    app.view.value = "heads";
    app.announcement.value = `${headLabel(attention, place)} is open in Heads`;
  };
  const step = (event: KeyboardEvent, row: number, place: number) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const to = attentions[row + by[0]];
    const column = place + by[1];
    if (!to || column < 0 || column >= to.heads.length) return;
    setAt(`${to.name}/${column}`);
    box.current!.querySelector<HTMLButtonElement>(`[data-cell="${CSS.escape(`${to.name}/${column}`)}"]`)?.focus();
  };
  const text = (x: number | null) => (x === null ? "–" : signed ? (x > 0 ? "+" : "") + fixed(x) : fixed(x));
  return (
    <>
      <div class="sheet">
        <div class="head-grid" ref={box} role="group" aria-label="Heads by layer" style={{ gridTemplateColumns: `auto repeat(${across}, minmax(1.9rem, 1fr))` }}>
          <span class="corner">layer</span>
          {Array.from({ length: across }, (_, i) => (
            <span key={i} class="column">
              {i}
            </span>
          ))}
          {attentions.map((attention, row) => (
            <>
              <span class="row" key={attention.name}>
                {headLabel(attention, 0).replace(/\.[^.]*$/, "")}
              </span>
              {attention.heads.map((number, place) => {
                const value = grid[attention.name]?.[place] ?? null;
                const name = `${attention.name}/${place}`;
                return (
                  <button
                    key={number}
                    type="button"
                    data-cell={name}
                    data-value={value ?? ""}
                    tabIndex={name === current ? 0 : -1}
                    class={app.attention.value === attention.name && app.head.value === place ? "chosen" : ""}
                    title={`${headLabel(attention, place)}: ${text(value)}`}
                    aria-label={`${headLabel(attention, place)}: ${value === null ? "not yet known" : short(value)}`}
                    style={value === null ? {} : { background: css(colours, share(value)), color: ink(colours, share(value)) }}
                    onFocus={() => setAt(name)}
                    onClick={() => open(attention, place)}
                    onKeyDown={(event) => step(event, row, place)}
                  >
                    {value === null ? "" : Math.abs(value) >= largest / 4 ? short(value) : ""}
                  </button>
                );
              })}
              {Array.from({ length: across - attention.heads.length }, (_, i) => (
                <span key={`${attention.name}/none/${i}`} />
              ))}
            </>
          ))}
        </div>
      </div>
      <section aria-label="The largest">
        <h2>The largest</h2>
        <ul class="others">
          {order.slice(0, 10).map(({ attention, place, value }) => (
            <li key={`${attention.name}/${place}`}>
              <button type="button" onClick={() => open(attention, place)}>
                {headLabel(attention, place)} <small>{signed ? text(value) : percent(value)}</small>
              </button>
            </li>
          ))}
        </ul>
      </section>
      <FoldedTable
        summary="Table of numbers"
        label="Numbers of the heads"
        corner="layer"
        columns={Array.from({ length: across }, (_, i) => String(i))}
        rows={attentions.map((one) => one.name)}
        cell={(i, j) => text(grid[attentions[i].name]?.[j] ?? null)}
      />
    </>
  );
}

/** A number of three signs. */
const short = (x: number) => x.toFixed(Math.abs(x) >= 9.95 ? 0 : Math.abs(x) >= 0.995 ? 1 : 2).replace("-", "−").replace(/^(−?)0\./, "$1.");
