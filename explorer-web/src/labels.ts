// The words or pieces beside the rows and columns of an attention, and the weights between them.

import type { App } from "./app";
import type { Attention, Sequence } from "./contract";
import { merge, Plane } from "./numbers";
import type { Source } from "./source";
import { pieceText, visible } from "./text";

export interface Labelled {
  plane: Plane;
  rows: string[];
  columns: string[];
}

export const pieces = (sequence: Sequence) => sequence.tokens.map(pieceText);
export const words = (sequence: Sequence) => sequence.words.map(([, , text]) => visible(text));
export const labels = (sequence: Sequence, whole: boolean) => (whole ? words(sequence) : pieces(sequence));

/** Whether words, not pieces, are shown: where all sides of the attention have words. */
export function wholeWords(app: App, source: Source, attention: Attention): boolean {
  const has = (index: number) => source.header.sequences[index].words.length > 0;
  return !app.pieces.value && has(attention.rows) && has(attention.columns);
}

/** A head's weights with labels, subwords merged into words where `whole`. */
export function labelled(source: Source, attention: Attention, head: number, whole: boolean): Labelled {
  const [rows, columns] = [attention.rows, attention.columns].map((index) => source.header.sequences[index]);
  const plane = source.plane(attention, head);
  if (!whole) return { plane, rows: pieces(rows), columns: pieces(columns) };
  return { plane: merge(plane, rows.words, columns.words), rows: words(rows), columns: words(columns) };
}
