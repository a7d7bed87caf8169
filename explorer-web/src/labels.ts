// The words or pieces beside the rows and columns of an attention, and the weights between them.

import type { App } from "./app";
import type { Attention, Sequence } from "./contract";
import { merge, Plane } from "./numbers";
import type { Gold } from "./drawing";
import type { Source } from "./source";
import { pieceText, visible } from "./text";

export interface Labelled {
  plane: Plane;
  rows: string[];
  columns: string[];
  starts: [number[], number[]]; // the first token of each row and of each column, and their ends
}

export const pieces = (sequence: Sequence) => sequence.tokens.map(pieceText);
export const words = (sequence: Sequence) => sequence.words.map(([, , text]) => visible(text));
export const labels = (sequence: Sequence, whole: boolean) => (whole ? words(sequence) : pieces(sequence));

/** Whether words, not pieces, are shown: where all sides of the attention have words. */
export function wholeWords(app: App, source: Source, attention: Attention): boolean {
  const has = (index: number) => source.header.sequences[index].words.length > 0;
  const chosen = source.header.translation ? !app.pieces.value : app.words.value;
  return chosen && has(attention.rows) && has(attention.columns);
}

/** A head's weights with labels, subwords merged into words where `whole`. */
export function labelled(source: Source, attention: Attention, head: number, whole: boolean): Labelled {
  const [rows, columns] = [attention.rows, attention.columns].map((index) => source.header.sequences[index]);
  const plane = source.plane(attention, head);
  if (!whole) return { plane, rows: pieces(rows), columns: pieces(columns), starts: binned(plane, attention) };
  const starts = ({ words, tokens }: Sequence) => [...words.map(([start]) => start), tokens.length];
  return { plane: merge(plane, rows.words, columns.words), rows: words(rows), columns: words(columns), starts: [starts(rows), starts(columns)] };
}

/** The first tokens of the bins of a picture; each token is a bin where the picture has as many. */
export function binned(plane: Plane, { shape: [, queries, keys] }: Attention): [number[], number[]] {
  const cut = (tokens: number, bins: number) => Array.from({ length: bins + 1 }, (_, i) => Math.floor((i * tokens) / bins));
  return [cut(queries, plane.rows), cut(keys, plane.columns)];
}

/** The bins of a picture by their first token and the places that they cover. */
export function binNames(source: Source, attention: Attention, starts: [number[], number[]]): [string[], string[]] {
  const [rows, columns] = [attention.rows, attention.columns].map((index, side) => {
    const { tokens } = source.header.sequences[index];
    return starts[side].slice(0, -1).map((start, i) => {
      const end = starts[side][i + 1] - 1;
      return `${pieceText(tokens[start])} (${start === end ? start : `${start}–${end}`})`;
    });
  });
  return [rows, columns];
}

/** The gold links of an attention as cells of its plane, where the plane has a row and a column for each of their words. */
export function goldIn(source: Source, attention: Attention, whole: boolean): Gold | undefined {
  const { links, sequences } = source.header;
  const words = [attention.rows, attention.columns].some((index) => sequences[index].words.length > 0);
  if (!links?.of.includes(attention.name) || words !== whole || !source.whole(attention)) return undefined;
  return new Map([...links.possible, ...links.sure].map((link) => [`${link[1]},${link[0]}`, links.sure.includes(link)]));
}

/** The chosen cell in a plane. The state counts tokens, so that the same cell is chosen in every view. */
export function chosenIn(app: App, { starts: [rows, columns] }: Labelled) {
  return {
    row: holding(rows, app.row.value),
    column: holding(columns, app.column.value),
    choose(row: number | null, column: number | null): void {
      app.row.value = row === null ? null : rows[row];
      app.column.value = column === null ? null : columns[column];
    },
  };
}

function holding(starts: number[], token: number | null): number | null {
  const place = token === null ? -1 : starts.findLastIndex((start) => start <= token);
  return place < 0 || place === starts.length - 1 ? null : place;
}

/** "17.3" for head 3 of layer 17; where layers are of several kinds, with the kind: "cross 1.0". */
export function headLabel(attention: Attention, place: number): string {
  const parts = /^(\w+)\.(\d+)\.(\w+)$/.exec(attention.name);
  const head = place < 0 ? "mean" : String(attention.heads[place]);
  if (!parts) return `${attention.name} ${head}`;
  const [, side, layer, kind] = parts;
  const stack = kind === "cross" ? "cross " : side === "layer" ? "" : `${side.slice(0, 3)} `;
  return place < 0 ? `${stack}${layer} mean` : `${stack}${layer}.${head}`;
}
