// One query of an attention, in words: the weight that was chosen, and the keys that it reads most.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { App } from "./app";
import type { Attention } from "./contract";
import { fixed, percent } from "./numbers";
import type { Source } from "./source";
import { placed } from "./text";

const READ = 12; // keys that are listed for a row

interface RowProps {
  app: App;
  source: Source;
  attention: Attention;
  head: number;
  brush?: [number, number] | null;
  clear?: () => void;
}

/** The exact weight under the cross, and the keys that the row, or the selected rows, read most. */
export function ChosenRow({ app, source, attention, head, brush = null, clear }: RowProps) {
  const [weights, setWeights] = useState<Float32Array | null>(null);
  const [row, column] = [app.row.value, app.column.value];
  const [from, to] = brush ?? [row, row];
  useEffect(() => {
    setWeights(null);
    if (from === null || to === null || from >= attention.shape[1]) return;
    let current = true;
    const got = from === to ? source.row(attention, head, from) : source.rows(attention, head, from, to);
    got.then((numbers) => current && setWeights(numbers), (fault: Error) => (app.error.value = fault.message));
    return () => {
      current = false;
    };
  }, [source, attention, head, from, to]);
  const [rows, columns] = [attention.rows, attention.columns].map((index) => source.header.sequences[index].tokens);
  const largest = useMemo(() => {
    if (!weights) return [];
    const order = Array.from(weights.keys()).filter((j) => weights[j] > 0);
    return order.sort((a, b) => weights[b] - weights[a]).slice(0, READ);
  }, [weights]);
  if (from === null || to === null) return <p class="hint">No cell is chosen.</p>;
  const exact = !brush && weights && column !== null && column < weights.length ? weights[column] : null;
  const title = from === to ? placed(rows, from) : `rows ${from} to ${to}`;
  const keysOfRow = source.partial(attention);
  const text = (weight: number) =>
    keysOfRow && !weight ? `is not among the ${keysOfRow} largest weights of its row` : `${percent(weight)} = ${Number.isNaN(weight) ? "masked" : weight.toPrecision(6)}`;
  return (
    <section aria-label="The chosen row">
      {exact !== null && (
        <p class="readout exact" data-weight={exact}>
          <bdi>{placed(rows, from)}</bdi> ← <bdi>{placed(columns, column!)}</bdi> {text(exact)}
        </p>
      )}
      <table>
        <caption>
          <bdi>{title}</bdi> read most{keysOfRow > 0 && `, of the ${keysOfRow} largest weights of each row and head`} {brush && <button onClick={clear}>one row again</button>}
        </caption>
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col">{from === to ? "weight" : "weight, mean of the rows"}</th>
          </tr>
        </thead>
        <tbody>
          {largest.map((j) => (
            <tr key={j} class={j === column ? "chosen" : ""}>
              <td dir="auto">{placed(columns, j)}</td>
              <td>{fixed(weights![j], 4)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
