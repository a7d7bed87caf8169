// A matrix of weights that can be pointed at, stepped through with the keys, read as a table and saved as a picture.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useApp } from "./app";
import { scale } from "./colour";
import { CanvasPen, draw, Drawing, Gold, Layout, layout, save, SvgPen } from "./drawing";
import { fixed, percent, Plane } from "./numbers";
import { marks, Tone, TONES } from "./raster";
import { FoldedTable } from "./table";

const TABLE = 4000; // cells of the longest table

export interface MatrixProps {
  name: string; // of the picture and its files
  plane: Plane;
  rows: string[];
  columns: string[];
  spoken?: [string[], string[]]; // names of rows and columns that have no room for labels
  top: number;
  diverging?: boolean;
  row?: number | null;
  column?: number | null;
  choose?: (row: number | null, column: number | null) => void;
  gold?: Gold; // cells that people linked
  tone?: Tone; // linear by default
  starts?: [number[], number[]]; // the first tokens of rows and columns, for ticks where labels have no room
}

type Weights = Pick<MatrixProps, "plane" | "rows" | "columns" | "spoken" | "diverging" | "gold">;

/** "cat ← gato 71%": the words of `rows` and `columns`, and the weight. */
export function sentenceOf(props: Weights, row: number, column: number): string {
  const [left, right, amount] = cellParts(props, row, column);
  return `${left} ← ${right} ${amount}`;
}

function cellParts({ plane, spoken, diverging, gold, ...drawn }: Weights, row: number, column: number): [string | number, string | number, string] {
  const weight = plane.data[row * plane.columns + column];
  const [rows, columns] = spoken ?? [drawn.rows, drawn.columns];
  const linked = { true: ", gold link", false: ", possible gold link", undefined: "" }[String(gold?.get(`${row},${column}`))];
  return [rows[row] ?? row, columns[column] ?? column, (diverging ? fixed(weight) : percent(weight)) + linked];
}

/** `sentenceOf`, with words of any direction at the right side of the arrow. */
function Readout({ at, ...weights }: Weights & { at: [number, number] }) {
  const [left, right, amount] = cellParts(weights, ...at);
  return (
    <>
      <bdi>{left}</bdi> ← <bdi>{right}</bdi> {amount}
    </>
  );
}

export function Matrix(props: MatrixProps) {
  const app = useApp();
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0); // pixels; 0: not yet measured
  const [hover, setHover] = useState<[number, number] | null>(null);
  const placed = useRef<Layout>(null as unknown as Layout);
  const { plane, row = null, column = null, choose } = props;
  const theme = app.theme.value;

  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setRoom(Math.floor(entry.contentRect.width)));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);

  // Drawn before the browser paints: a click always meets the layout that is on the screen.
  useLayoutEffect(() => {
    const element = canvas.current!;
    const ratio = window.devicePixelRatio || 1;
    const on = element.getContext("2d")!;
    const colours = paint(element, theme, props.diverging);
    const pen = new CanvasPen(on, colours.faint);
    const at = (placed.current = layout(props, pen, room || box.current!.clientWidth));
    element.width = Math.ceil(at.width * ratio);
    element.height = Math.ceil(at.height * ratio);
    element.style.width = `${at.width}px`;
    element.style.height = `${at.height}px`;
    on.scale(ratio, ratio);
    draw(props, at, pen, colours, hover ? hover[0] : row, hover ? hover[1] : column);
  }, [plane, props.rows, props.columns, props.top, room, theme, row, column, hover, props.gold, props.tone]);

  const cellAt = (event: MouseEvent): [number, number] | null => {
    const { left, top } = canvas.current!.getBoundingClientRect();
    const at = placed.current;
    const i = Math.floor((event.clientY - top - at.head) / at.cell);
    const j = Math.floor((event.clientX - left - at.left) / at.cell);
    return i >= 0 && j >= 0 && i < plane.rows && j < plane.columns ? [i, j] : null;
  };

  const step = (event: KeyboardEvent) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") choose?.(null, null);
    if (!by || !choose) return;
    event.preventDefault();
    const next = (now: number | null, move: number, count: number) =>
      now === null ? 0 : Math.min(Math.max(now + move, 0), count - 1);
    const [i, j] = [next(row, by[0], plane.rows), next(column, by[1], plane.columns)];
    choose(i, j);
    app.announcement.value = sentenceOf(props, i, j);
  };

  const pointed = hover ?? (row !== null && column !== null ? [row, column] : null);
  return (
    <figure class="matrix">
      <div class="sheet" ref={box}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${props.name}: ${plane.rows} rows read ${plane.columns} columns; arrow keys move, the table below has the numbers`}
          onPointerMove={(event) => setHover(cellAt(event))}
          onPointerLeave={() => setHover(null)}
          onClick={(event) => {
            const cell = cellAt(event);
            choose?.(cell && cell[0], cell && cell[1]);
          }}
          onKeyDown={step}
        />
      </div>
      <figcaption>
        <Legend top={props.top} diverging={props.diverging} tone={props.tone} masked={plane.data.some(Number.isNaN)} />
        {props.gold && (
          <span class="legend">
            <i class="gold" /> gold link{[...props.gold.values()].includes(false) && (
              <>
                {" "}
                <i class="gold possible" /> possible one
              </>
            )}
          </span>
        )}
        <output class="readout">{pointed ? <Readout {...props} at={pointed} /> : " "}</output>
        <span class="tools">
          <button type="button" onClick={() => savePicture(props, canvas.current!)}>
            PNG
          </button>
          <button type="button" onClick={() => saveDrawing(props, canvas.current!, theme)}>
            SVG
          </button>
        </span>
      </figcaption>
      <Table {...props} />
    </figure>
  );
}

function paint(element: Element, theme: "light" | "dark", diverging?: boolean) {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return { ink: colour("--ink"), faint: colour("--faint"), accent: colour("--accent"), scale: scale(theme, diverging) };
}

function savePicture(props: MatrixProps, from: HTMLCanvasElement): void {
  const paper = document.createElement("canvas");
  paper.width = from.width;
  paper.height = from.height;
  const on = paper.getContext("2d")!;
  on.fillStyle = getComputedStyle(from).getPropertyValue("--paper").trim();
  on.fillRect(0, 0, paper.width, paper.height);
  on.drawImage(from, 0, 0);
  paper.toBlob((blob) => blob && save(`${props.name}.png`, blob));
}

function saveDrawing(props: MatrixProps, from: HTMLCanvasElement, theme: "light" | "dark"): void {
  const colours = paint(from, theme, props.diverging);
  const pen = new SvgPen(new CanvasPen(from.getContext("2d")!, colours.faint), colours.faint);
  const at = layout(props, pen, 900);
  draw(props as Drawing, at, pen, colours, null, null);
  const paper = getComputedStyle(from).getPropertyValue("--paper").trim();
  save(`${props.name}.svg`, new Blob([pen.svg(at.width, at.height, paper)], { type: "image/svg+xml" }));
}

interface LegendProps {
  top: number;
  diverging?: boolean;
  tone?: Tone;
  masked: boolean;
  raster?: boolean; // whether masked cells are pixels, and not hatched
}

export function Legend({ top, diverging, tone = "linear", masked, raster }: LegendProps) {
  const app = useApp();
  const bar = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const on = bar.current!.getContext("2d")!;
    const colours = scale(app.theme.value, diverging);
    for (let i = 0; i < 128; i++) {
      on.fillStyle = `rgb(${colours[6 * i]} ${colours[6 * i + 1]} ${colours[6 * i + 2]})`;
      on.fillRect(i, 0, 1, 8);
    }
  });
  const text = (weight: number) => (diverging || top > 1 ? fixed(weight, top < 0.1 ? 3 : 2) : weight && weight < 0.001 ? `${Number((100 * weight).toPrecision(1))}%` : percent(weight));
  const [start, middle] = marks(top, tone);
  return (
    <span class="legend">
      {diverging ? `−${text(top)}` : text(start)} <canvas ref={bar} width={128} height={8} aria-hidden="true" /> {diverging ? `+${text(top)}` : text(top)}
      {tone !== "linear" && `, ${TONES[tone]}: ${text(middle)} in the middle`}
      {masked && (
        <>
          <i class={raster ? "masked pixels" : "masked"} /> masked: may not be read
        </>
      )}
    </span>
  );
}

/** The numbers, if they are few. */
function Table({ plane, spoken, diverging, name, ...drawn }: MatrixProps) {
  if (plane.data.length > TABLE) return null;
  const [rows, columns] = spoken ?? [drawn.rows, drawn.columns];
  const cell = (i: number, j: number) => {
    const weight = plane.data[i * plane.columns + j];
    return Number.isNaN(weight) ? "masked" : fixed(weight, diverging ? 3 : 4);
  };
  return <FoldedTable summary="Table of numbers" label={`${name}, numbers`} columns={columns} rows={rows} cell={cell} />;
}
