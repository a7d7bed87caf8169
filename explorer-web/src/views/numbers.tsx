// Numbers: one query through the arithmetic of a head, from products to the block's output.

import { useEffect, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import { AttentionChoice } from "../choices";
import { css, scale } from "../colour";
import type { Attention } from "../contract";
import { labels } from "../labels";
import { fixed, percent } from "../numbers";
import { Export } from "../sheet";
import { answered, failure } from "../server";
import type { Source } from "../source";
import { Bar, BarHead, FoldedTable, Sheet } from "../table";
import { pieceText } from "../text";

const LISTED = 12; // terms that are listed

interface Terms {
  kind: "dot" | "additive" | "other";
  query: number[];
  key: number[];
  terms: number[];
  sum: number;
  scale: number;
  cap?: number;
  score: number;
}

interface Arithmetic {
  terms: Terms;
  scores: number[];
  bias?: number[];
  readable: boolean[];
  weights: number[];
  edited?: number[];
  stages?: Record<string, number[]>;
  unprojected?: string; // why the head's output is not known
  pairs?: { query: string; key: string; score: number }[];
  rest?: number;
  split?: number;
  unsplit?: string;
}

export function Numbers() {
  const app = useApp();
  const source = app.scene.value;
  if (!source || source.header.run === null) return <p class="hint">{app.prompts ? "Run a prompt first." : "Translate a sentence first."}</p>;
  const { attentions } = source.header;
  const attention = attentions.find((one) => one.name === app.attention.value) ?? attentions[attentions.length - 1];
  const head = Math.max(0, Math.min(app.head.value, attention.heads.length - 1));
  return (
    <>
      <div class="tools">
        <AttentionChoice app={app} attentions={attentions} now={attention} head={head} mean={false} />
        <Place app={app} source={source} attention={attention} side="row" />
        <Place app={app} source={source} attention={attention} side="column" />
      </div>
      <Sums app={app} source={source} attention={attention} head={head} />
    </>
  );
}

const tokens = (source: Source, index: number) => labels(source.header.sequences[index], false);
const at = (place: number | null, count: number) => Math.min(place ?? 0, count - 1);

/** The query or the key, as a piece. */
function Place({ app, source, attention, side }: { app: App; source: Source; attention: Attention; side: "row" | "column" }) {
  const position = side === "row" ? app.row : app.column;
  const words = tokens(source, side === "row" ? attention.rows : attention.columns);
  return (
    <label>
      {side === "row" ? "Query" : "Key"}{" "}
      <select value={String(at(position.value, words.length))} onChange={(event) => (position.value = Number(event.currentTarget.value))}>
        {words.map((token, place) => (
          <option key={place} value={place}>
            {place}: {token}
          </option>
        ))}
      </select>
    </label>
  );
}

function Sums({ app, source, attention, head }: { app: App; source: Source; attention: Attention; head: number }) {
  const [sums, setSums] = useState<Arithmetic | null>(null);
  const [, queries, keys] = attention.shape;
  const [query, key] = [at(app.row.value, queries), at(app.column.value, keys)];
  useEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      try {
        const answer = await source.ask(source.url("numbers", { attention: attention.name, head, query, key }), { signal: abort.signal });
        if (!answer.ok) throw new Error(await failure(answer));
        setSums((await answer.json()) as Arithmetic);
      } catch (fault) {
        if (!abort.signal.aborted) app.error.value = (fault as Error).message;
      }
    };
    void load();
    return () => abort.abort();
  }, [source, attention.name, head, query, key]);
  if (!sums) return <p class="busy">reading the numbers …</p>;
  const [rows, columns] = [tokens(source, attention.rows), tokens(source, attention.columns)];
  return (
    <div class="sums">
      <Products terms={sums.terms} query={rows[query]} cell={columns[key]} />
      <Weights app={app} sums={sums} columns={columns} chosen={key} query={rows[query]} />
      <Components sums={sums} query={rows[query]} cell={columns[key]} />
      {sums.unprojected && <p class="hint">The head's output is not shown: {sums.unprojected}.</p>}
      {source.header.prompt && <DirectEffects app={app} source={source} attention={attention} head={head} place={Math.min(query, source.header.prompt.next.length - 1)} />}
      {sums.stages && <Stages app={app} stages={sums.stages} columns={columns} heads={attention.heads} head={head} />}
    </div>
  );
}

/** Why this score: the terms, the largest first, and what is done with their sum. */
function Products({ terms, query, cell }: { terms: Terms; query: string; cell: string }) {
  if (terms.kind === "other") return <p class="hint">The score is a function of its own: it has no terms to show.</p>;
  const order = terms.terms.map((_, i) => i).sort((a, b) => Math.abs(terms.terms[b]) - Math.abs(terms.terms[a]));
  const largestTerms = order.slice(0, LISTED);
  const remainder = order.slice(LISTED).reduce((sum, i) => sum + terms.terms[i], 0);
  const largest = Math.abs(terms.terms[order[0]]) || 1;
  const dot = terms.kind === "dot";
  return (
    <section aria-label="Why this score">
      <h2>
        1. Why this score: <bdi>{query}</bdi> · <bdi>{cell}</bdi>
      </h2>
      <p class="equation">{dot ? "score = scale × Σ query × key" : "score = Σ v × tanh(query + key)"}</p>
      <Sheet label="Terms of the score, table">
        <table>
          <BarHead names={[dot ? "dimension" : "channel", "query", "key", dot ? "product" : "v × tanh"]} />
          <tbody>
            {largestTerms.map((i) => (
              <tr key={i}>
                <th scope="row">{i}</th>
                <td>{fixed(terms.query[i])}</td>
                <td>{fixed(terms.key[i])}</td>
                <td class="term">{fixed(terms.terms[i])}</td>
                <td>
                  <Bar share={terms.terms[i] / largest} />
                </td>
              </tr>
            ))}
            <tr>
              <th scope="row">{order.length - largestTerms.length} others</th>
              <td />
              <td />
              <td class="term">{fixed(remainder)}</td>
              <td />
            </tr>
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">sum</th>
              <td />
              <td />
              <td class="sum">{fixed(terms.sum, 4)}</td>
              <td />
            </tr>
            <tr>
              <th scope="row">{terms.scale === 1 ? "score" : `× ${fixed(terms.scale, 4)} = score`}</th>
              <td />
              <td />
              <td class="score" data-score={terms.score}>
                {fixed(terms.score, 4)}
              </td>
              <td>{terms.cap === undefined ? "" : `bounded by ${terms.cap}`}</td>
            </tr>
          </tfoot>
        </table>
      </Sheet>
    </section>
  );
}

/** Scores, bias and mask, softmax. */
function Weights({ app, sums, columns, chosen, query }: { app: App; sums: Arithmetic; columns: string[]; chosen: number; query: string }) {
  const colours = scale(app.theme.value);
  const masked = (j: number) => !sums.readable[j];
  const logits = sums.scores.map((score, j) => (masked(j) ? -Infinity : score + (sums.bias?.[j] ?? 0)));
  const largest = Math.max(...logits);
  return (
    <section aria-label="Scores and weights">
      <h2>
        2. From scores to weights: what <bdi>{query}</bdi> reads
      </h2>
      <Sheet label="Scores and weights, table">
        <table>
          <thead>
            <tr>
              <th scope="col">key</th>
              <th scope="col">score</th>
              {sums.bias && <th scope="col">bias</th>}
              <th scope="col">exp(score − max)</th>
              <th scope="col">weight</th>
              {sums.edited && <th scope="col">edited</th>}
            </tr>
          </thead>
          <tbody>
            {columns.map((token, j) => (
              <tr key={j} class={j === chosen ? "chosen" : ""} onClick={() => (app.column.value = j)}>
                <th scope="row" dir="auto">
                  {token}
                </th>
                <td>{fixed(sums.scores[j])}</td>
                {sums.bias && <td>{fixed(sums.bias[j])}</td>}
                <td>{masked(j) ? "masked" : fixed(Math.exp(logits[j] - largest), 4)}</td>
                <td class="weight" data-weight={sums.weights[j]}>
                  <i class="dot" style={{ background: css(colours, sums.weights[j]) }} /> {percent(sums.weights[j])}
                </td>
                {sums.edited && <td>{percent(sums.edited[j])}</td>}
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">sum</th>
              <td />
              {sums.bias && <td />}
              <td>{fixed(logits.reduce((sum, x) => sum + Math.exp(x - largest), 0), 4)}</td>
              <td class="weights-sum">{fixed(sums.weights.reduce((sum, x) => sum + x, 0), 4)}</td>
              {sums.edited && <td>{fixed(sums.edited.reduce((sum, x) => sum + x, 0), 4)}</td>}
            </tr>
          </tfoot>
        </table>
      </Sheet>
    </section>
  );
}

/** The score as a sum over pairs of components of the residual stream. */
function Components({ sums, query, cell }: { sums: Arithmetic; query: string; cell: string }) {
  if (!sums.pairs) return sums.unsplit ? <p class="hint">The score is not split by components: {sums.unsplit}.</p> : null;
  const largest = Math.abs(sums.pairs[0]?.score ?? 1);
  return (
    <section aria-label="Which components made the score">
      <h2>3. Which earlier components made this score</h2>
      <p class="hint">Each norm divides a component by the same number as the whole sum.</p>
      <Sheet label="Components of the score, table">
        <table>
          <BarHead names={[<>of <bdi>{query}</bdi></>, <>of <bdi>{cell}</bdi></>, "part of the score"]} />
          <tbody>
            {sums.pairs.slice(0, LISTED).map((pair) => (
              <tr key={`${pair.query}/${pair.key}`}>
                <td>{pair.query}</td>
                <td>{pair.key}</td>
                <td>{fixed(pair.score)}</td>
                <td>
                  <Bar share={pair.score / largest} />
                </td>
              </tr>
            ))}
            <tr>
              <td>all others</td>
              <td />
              <td>{fixed(sums.split! - sums.pairs.slice(0, LISTED).reduce((sum, pair) => sum + pair.score, 0))}</td>
              <td />
            </tr>
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">score</th>
              <td />
              <td>{fixed(sums.split, 4)}</td>
              <td />
            </tr>
          </tfoot>
        </table>
      </Sheet>
    </section>
  );
}

interface Direct {
  token: string;
  logit: number;
  parts: [string, number][];
  heads: Record<string, number[]>;
  objection?: string;
}

/** The logit of a token that may come next, as a sum over what each layer added to the residual stream. */
function DirectEffects({ app, source, attention, head, place }: { app: App; source: Source; attention: Attention; head: number; place: number }) {
  const next = source.header.prompt!.next[place];
  const [id, setId] = useState(next[0].id);
  const token = next.some((one) => one.id === id) ? id : next[0].id;
  const [direct, setDirect] = useState<Direct | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setDirect(null);
    answered<Direct>(source.ask, "api/direct", { run: source.header.run, token, place }, abort.signal).then(setDirect, (fault: Error) => abort.signal.aborted || (app.error.value = fault.message));
    return () => abort.abort();
  }, [source, token, place]);
  const parts = direct?.parts && [...direct.parts].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const largest = parts && Math.abs(parts[0][1]);
  return (
    <section aria-label="Direct effect on a logit">
      <h2>3. Direct effect on a logit: what each layer adds</h2>
      <label>
        Next token{" "}
        <select value={token} onChange={(event) => setId(Number(event.currentTarget.value))}>
          {next.map((one) => (
            <option key={one.id} value={one.id}>
              {pieceText(one.token)}
            </option>
          ))}
        </select>
      </label>
      {!direct && <p class="busy">computing …</p>}
      {direct?.objection && <p class="hint">The logit is not split: {direct.objection}.</p>}
      {parts && (
        <>
          {direct.heads[attention.name] && (
            <p class="direct" data-direct={direct.heads[attention.name][head]}>
              This head adds <b>{fixed(direct.heads[attention.name][head], 4)}</b> to the logit, through the final norm and the unembedding.
            </p>
          )}
          <Sheet label="Summands of the logit, table">
            <table>
              <BarHead names={["component", "part of the logit"]} />
              <tbody>
                {parts.slice(0, LISTED).map(([name, part]) => (
                  <tr key={name} class={name === attention.name ? "chosen" : ""}>
                    <td>{name}</td>
                    <td>{fixed(part)}</td>
                    <td>
                      <Bar share={part / largest!} />
                    </td>
                  </tr>
                ))}
                <tr>
                  <td>{Math.max(0, parts.length - LISTED)} others</td>
                  <td>{fixed(parts.slice(LISTED).reduce((sum, [, part]) => sum + part, 0))}</td>
                  <td />
                </tr>
              </tbody>
              <tfoot>
                <tr>
                  <th scope="row">logit</th>
                  <td class="logit">{fixed(direct.logit, 4)}</td>
                  <td />
                </tr>
              </tfoot>
            </table>
          </Sheet>
          <p class="hint">The norm's deviation is held fixed, so that the parts add up.</p>
        </>
      )}
    </section>
  );
}

const STRIPS: [string, string][] = [
  ["reading", "reading of the head: Σ weight × value"],
  ["head output", "through the head's part of the output projection"],
  ["attention output", "sum over the heads"],
  ["before: residual in", "the position before this attention"],
  ["before: residual out", "… plus the attention's output"],
  ["before: normalised sum", "… plus the attention's output, normalised"],
  ["feed-forward: residual in", "into the feed-forward layer"],
  ["feed-forward: norm", "normalised"],
  ["feed-forward: output", "output of the feed-forward layer"],
  ["feed-forward: residual out", "the position after the block"],
  ["feed-forward: normalised sum", "… plus this output, normalised: the position after the block"],
];

interface StagesProps {
  app: App;
  stages: Record<string, number[]>;
  columns: string[];
  heads: number[];
  head: number;
}

/** The vectors after the weights: each as a strip, a colour for each number. */
function Stages({ app, stages, columns, heads, head }: StagesProps) {
  const largest = stages.weighted?.map((length, j) => ({ length, j })).sort((a, b) => b.length - a.length).slice(0, 6);
  return (
    <section aria-label="From values to the block's output">
      <h2>4. From values to the block's output</h2>
      {largest && (
        <p>
          Longest weighted values:{" "}
          {largest.map(({ length, j }) => (
            <span key={j} class="pill">
              <bdi>{columns[j]}</bdi> {fixed(length, 2)}
            </span>
          ))}
        </p>
      )}
      {stages.heads && (
        <p>
          Length of each head's output:{" "}
          {stages.heads.map((length, i) => (
            <span key={i} class={i === head ? "pill chosen" : "pill"}>
              head {heads[i]} {fixed(length, 2)}
            </span>
          ))}
        </p>
      )}
      <Strips app={app} strips={STRIPS.filter(([name]) => stages[name]).map(([name, text]) => [text, stages[name]])} />
    </section>
  );
}

/** Vectors as strips of colour, with their numbers as a table. */
function Strips({ app, strips }: { app: App; strips: [string, number[]][] }) {
  const list = useRef<HTMLDListElement>(null);
  const tiles = () => Array.from(list.current!.querySelectorAll("canvas"), (canvas, i) => ({ canvas, text: [strips[i][0]] }));
  const longest = Math.max(...strips.map(([, numbers]) => numbers.length));
  return (
    <>
      <dl class="strips" ref={list}>
        {strips.map(([name, numbers]) => (
          <Strip key={name} app={app} name={name} numbers={numbers} />
        ))}
      </dl>
      <Export name="numbers" tiles={tiles} width={640} height={20} />
      <FoldedTable
        summary="Table of numbers"
        label="Numbers of the strips"
        corner="channel"
        columns={strips.map(([name]) => name)}
        rows={Array.from({ length: longest }, (_, i) => String(i))}
        cell={(i, j) => (i < strips[j][1].length ? fixed(strips[j][1][i], 4) : "")}
      />
    </>
  );
}

function Strip({ app, name, numbers }: { app: App; name: string; numbers: number[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [place, setPlace] = useState<number | null>(null);
  const theme = app.theme.value;
  const length = Math.hypot(...numbers);
  useEffect(() => {
    const element = canvas.current!;
    const on = element.getContext("2d")!;
    const colours = scale(theme, true);
    const largest = Math.max(1e-9, ...numbers.map(Math.abs));
    numbers.forEach((x, i) => {
      on.fillStyle = css(colours, 0.5 + x / largest / 2);
      on.fillRect(i, 0, 1, 1);
    });
  }, [numbers, theme]);
  return (
    <>
      <dt>
        {name} <small>length {fixed(length, 2)}</small>
      </dt>
      <dd>
        <canvas
          ref={canvas}
          width={numbers.length}
          height={1}
          role="img"
          aria-label={`${numbers.length} numbers, length ${fixed(length, 2)}`}
          onPointerMove={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            setPlace(Math.floor(((event.clientX - box.left) / box.width) * numbers.length));
          }}
          onPointerLeave={() => setPlace(null)}
        />
        <small>{place !== null && numbers[place] !== undefined ? `[${place}] ${fixed(numbers[place], 4)}` : " "}</small>
      </dd>
    </>
  );
}
