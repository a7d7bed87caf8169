// A matrix of weights with its labels, drawn with a pen: on a canvas, or as SVG.

import { css, ink, Scale } from "./colour";
import { Plane } from "./numbers";
import { share, Tone } from "./raster";
import { rightToLeft } from "./text";

export interface Pen {
  rectangle(x: number, y: number, width: number, height: number, colour: string): void;
  frame(x: number, y: number, width: number, height: number, colour: string): void;
  hatch(x: number, y: number, width: number, height: number): void;
  text(x: number, y: number, text: string, how: { align: "start" | "end"; turned?: boolean; colour: string; size: number }): void;
  measure(text: string, size: number): number;
}

/** Cells that people linked, as "row,column"; whether the link is sure. */
export type Gold = ReadonlyMap<string, boolean>;

export interface Drawing {
  plane: Plane;
  rows: string[];
  columns: string[];
  top: number; // the weight at the end of the scale
  diverging?: boolean;
  cell?: number;
  gold?: Gold;
  tone?: Tone;
  starts?: [number[], number[]]; // the first token of each row and column, where there is no room for labels
}

export interface Layout {
  cell: number;
  left: number;
  head: number;
  width: number;
  height: number;
  size: number; // of the letters
}

const LONGEST = 130; // pixels of a label

/** Places and sizes, for the width there is. Without labels where cells are too small for letters. */
export function layout(drawing: Drawing, pen: Pick<Pen, "measure">, room: number): Layout {
  const { plane, rows, columns } = drawing;
  const size = 12;
  const widest = (labels: string[]) => Math.min(LONGEST, Math.max(0, ...labels.slice(0, 400).map((label) => pen.measure(label, size)))) + 10;
  const margin = rows.length ? Math.min(widest(rows), room * 0.4) : 0;
  const free = Math.max(60, room - margin - 2);
  const fitting = Math.floor(free / plane.columns);
  const cell = drawing.cell ?? Math.max(columns.length && plane.columns <= 200 ? 13 : 1, Math.min(34, fitting));
  const labelled = cell >= 11;
  const ticked = !(labelled && rows.length && columns.length) && drawing.starts !== undefined;
  const head = labelled && columns.length ? widest(columns) : ticked ? 20 : 0;
  const left = labelled && rows.length ? margin : ticked ? 46 : 0;
  return {
    cell,
    left,
    head,
    width: left + cell * plane.columns + 1,
    height: head + cell * plane.rows + 1,
    size: Math.min(size, Math.max(9, cell - 2)),
  };
}

export interface Paint {
  ink: string;
  faint: string;
  accent: string;
  scale: Scale;
}

export function draw(drawing: Drawing, at: Layout, pen: Pen, paint: Paint, row: number | null, column: number | null): void {
  const { plane, top, diverging, tone = "linear" } = drawing;
  const place = (weight: number) => (diverging ? 0.5 + weight / top / 2 : share(weight, top, tone));
  const { cell, left, head, size } = at;
  const gap = cell >= 8 ? 1 : 0;
  for (let i = 0; i < plane.rows; i++)
    for (let j = 0; j < plane.columns; j++) {
      const weight = plane.data[i * plane.columns + j];
      const [x, y] = [left + j * cell, head + i * cell];
      if (Number.isNaN(weight)) pen.hatch(x, y, cell - gap, cell - gap);
      else pen.rectangle(x, y, cell - gap, cell - gap, css(paint.scale, place(weight)));
    }
  const dot = Math.max(3, Math.round(cell / 3));
  for (const [at, sure] of cell < 6 ? [] : (drawing.gold ?? [])) {
    const [i, j] = at.split(",").map(Number);
    const [x, y] = [left + (j + 0.5) * cell - dot / 2, head + (i + 0.5) * cell - dot / 2].map(Math.round);
    const colour = ink(paint.scale, place(plane.data[i * plane.columns + j] || 0));
    if (sure) pen.rectangle(x, y, dot, dot, colour);
    else pen.frame(x, y, dot, dot, colour);
  }
  if (drawing.starts && (head || left) && !(cell >= 11 && drawing.rows.length && drawing.columns.length)) {
    const [rows, columns] = drawing.starts;
    const every = (gap: number) => Math.max(1, Math.ceil(gap / cell));
    for (let i = 0; i < plane.rows; i += every(24)) pen.text(left - 6, head + (i + 0.5) * cell, String(rows[i]), { align: "end", colour: paint.ink, size });
    for (let j = 0; j < plane.columns; j += every(44)) pen.text(left + j * cell, head - 9, String(columns[j]), { align: "start", colour: paint.ink, size });
  } else if (head || left) {
    drawing.rows.forEach((label, i) => {
      const colour = i === row ? paint.accent : paint.ink;
      pen.text(left - 6, head + (i + 0.5) * cell, clip(label, left - 8, pen, size), { align: "end", colour, size });
    });
    drawing.columns.forEach((label, j) => {
      const colour = j === column ? paint.accent : paint.ink;
      pen.text(left + (j + 0.5) * cell, head - 5, clip(label, head - 8, pen, size), { align: "start", turned: true, colour, size });
    });
  }
  if (!diverging && plane.data.every((weight) => !(weight > 0)) && plane.data.some((weight) => weight === 0)) {
    pen.text(left + 8, head + Math.max(12, (cell * plane.rows) / 2), "off: every weight is 0", { align: "start", colour: paint.ink, size: 13 });
  }
  if (row !== null) pen.frame(left, head + row * cell, cell * plane.columns, cell, paint.accent);
  if (column !== null) pen.frame(left + column * cell, head, cell, cell * plane.rows, row === null ? paint.accent : paint.faint);
}

function clip(label: string, room: number, pen: Pen, size: number): string {
  if (pen.measure(label, size) <= room) return label;
  let text = Array.from(LETTERS.segment(label), ({ segment }) => segment);
  while (text.length > 1 && pen.measure(text.join("") + "…", size) > room) text = text.slice(0, -1);
  return text.join("") + "…";
}

const LETTERS = new Intl.Segmenter(undefined, { granularity: "grapheme" }); // a letter with its marks is not cut

const FONT = "system-ui, sans-serif";

export class CanvasPen implements Pen {
  constructor(private readonly on: CanvasRenderingContext2D, private readonly faint: string) {}

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    this.on.fillStyle = colour;
    this.on.fillRect(x, y, width, height);
  }

  frame(x: number, y: number, width: number, height: number, colour: string): void {
    this.on.strokeStyle = colour;
    this.on.lineWidth = 2;
    this.on.strokeRect(x, y, width - 1, height - 1);
  }

  hatch(x: number, y: number, width: number, height: number): void {
    this.on.save();
    if (width < 4) {
      this.on.globalAlpha = 0.3; // no room for lines
      this.rectangle(x, y, width, height, this.faint);
      this.on.restore();
      return;
    }
    this.on.beginPath();
    this.on.rect(x, y, width, height);
    this.on.clip();
    this.on.strokeStyle = this.faint;
    this.on.globalAlpha = 0.45;
    this.on.lineWidth = 1;
    this.on.beginPath();
    for (let at = -height; at < width; at += 5) {
      this.on.moveTo(x + at, y + height);
      this.on.lineTo(x + at + height, y);
    }
    this.on.stroke();
    this.on.restore();
  }

  text(x: number, y: number, text: string, how: { align: "start" | "end"; turned?: boolean; colour: string; size: number }): void {
    const { on } = this;
    on.save();
    on.fillStyle = how.colour;
    on.font = `${how.size}px ${FONT}`;
    on.textBaseline = "middle";
    on.translate(x, y);
    if (how.turned) on.rotate(-Math.PI / 2);
    on.direction = rightToLeft(text) ? "rtl" : "ltr";
    on.textAlign = how.align === "end" ? "right" : "left";
    on.fillText(text, 0, 0);
    on.restore();
  }

  measure(text: string, size: number): number {
    this.on.font = `${size}px ${FONT}`;
    return this.on.measureText(text).width;
  }
}

export class SvgPen implements Pen {
  private elements: string[] = [];

  constructor(private readonly ruler: Pick<Pen, "measure">, private readonly faint: string) {}

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    this.elements.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${colour}"/>`);
  }

  frame(x: number, y: number, width: number, height: number, colour: string): void {
    this.elements.push(`<rect x="${x}" y="${y}" width="${width - 1}" height="${height - 1}" fill="none" stroke="${colour}" stroke-width="2"/>`);
  }

  hatch(x: number, y: number, width: number, height: number): void {
    this.elements.push(`<path d="M${x} ${y + height}L${x + width} ${y}" stroke="${this.faint}" stroke-opacity=".45"/>`);
  }

  text(x: number, y: number, text: string, how: { align: "start" | "end"; turned?: boolean; colour: string; size: number }): void {
    const turn = how.turned ? ` transform="rotate(-90 ${x} ${y})"` : "";
    const turned = rightToLeft(text); // there the end of a text is at its left
    const anchor = turned === (how.align === "end") ? "start" : "end";
    this.elements.push(
      `<text x="${x}" y="${y}" font-size="${how.size}" fill="${how.colour}" dominant-baseline="central" direction="${turned ? "rtl" : "ltr"}" text-anchor="${anchor}"${turn}>${escaped(text)}</text>`,
    );
  }

  image(x: number, y: number, width: number, height: number, data: string): void {
    this.elements.push(
      `<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" image-rendering="pixelated" href="${escaped(data)}"/>`,
    );
  }

  measure(text: string, size: number): number {
    return this.ruler.measure(text, size);
  }

  svg(width: number, height: number, paper: string): string {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${FONT}">` +
      `<rect width="100%" height="100%" fill="${paper}"/>${this.elements.join("")}</svg>`
    );
  }
}

const escaped = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** Hand a file to the person at the browser. */
export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
