// Map: deep zoom into an attention of any size. Cells have whole numbers as coordinates, rows down, columns across.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { App, useApp } from "../app";
import { AttentionChoice, ToneChoice } from "../choices";
import type { Theme } from "../colour";
import type { Attention } from "../contract";
import { Export } from "../sheet";
import { Legend } from "../matrix";
import { peak, Plane, roundTop } from "../numbers";
import { fitting, raster, Tone } from "../raster";
import { ChosenRow } from "../row";
import { MEAN, Source } from "../source";
import { pieceText, placed } from "../text";
import { pyramid, Pyramid, SIZE, TileCache } from "../tiles";

const MINI = 120; // pixels of the minimap
const LISTED = 8; // tokens of a pixel that are written out
const REST = 120; // milliseconds without a move

/** The end of the colour scale, whether a cell is masked, and the tone. */
type Painted = [number, boolean, Tone];

/** The part of the map on the screen: its middle in cells, and the pixels of a cell. */
interface Frame {
  row: number;
  column: number;
  zoom: number;
}

export function Map() {
  const app = useApp();
  const source = app.scene.value;
  const able = source?.header.attentions ?? [];
  const attention = able.find((one) => one.name === app.attention.value) ?? able[able.length - 1];
  if (!source || !attention) return <p class="hint">There is nothing to map.</p>;
  const head = app.head.value < attention.heads.length ? app.head.value : MEAN;
  return (
    <>
      <div class="tools">
        <AttentionChoice app={app} attentions={able} now={attention} head={head} words={false} />
      </div>
      <Deep key={`${attention.name}/${head}/${source.header.run}`} app={app} source={source} attention={attention} head={head} />
    </>
  );
}

interface DeepProps {
  app: App;
  source: Source;
  attention: Attention;
  head: number;
}

function Deep({ app, source, attention, head }: DeepProps) {
  const [built, setBuilt] = useState<Pyramid | null>(null);
  useEffect(() => {
    pyramid(source, attention, head).then(setBuilt, (fault: Error) => (app.error.value = fault.message));
  }, []);
  return built ? <Chart {...{ app, source, attention, head, built }} /> : <p class="busy">opening the map …</p>;
}

function Chart({ app, source, attention, head, built }: DeepProps & { built: Pyramid }) {
  const [, queries, keys] = attention.shape;
  const [rows, columns] = [attention.rows, attention.columns].map((index) => source.header.sequences[index].tokens);
  const reduction = useMemo(() => app.address.text("reduce", "max"), []);
  const reduce = built.reduces.find((one) => one === reduction.value) ?? "max";
  const at = useMemo(() => app.address.text("at"), []);
  const brush = useMemo(() => app.address.text("rows"), []);
  const canvas = useRef<HTMLCanvasElement>(null);
  const mini = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  const [, redraw] = useState(0);
  const [hover, setHover] = useState<[number, number] | null>(null);
  const [progress, setProgress] = useState<number | null>(null);
  const [[top, masked, drawnTone], setPainted] = useState<Painted>([1, false, "linear"]);
  const theme = app.theme.value;
  const { tone } = app;
  const cache = useMemo(() => {
    const fault = (reason: string) => (app.error.value = reason);
    return new TileCache(built, reduce, () => redraw((n) => n + 1), fault);
  }, [built, reduce]);
  useEffect(() => () => cache.close(), [cache]);

  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      setSize([width, Math.min(Math.round(width * 0.75), Math.round(window.innerHeight * 0.7))]);
    });
    watcher.observe(canvas.current!.parentElement!);
    return () => watcher.disconnect();
  }, []);

  const fullFrame: Frame = { row: queries / 2, column: keys / 2, zoom: Math.min(size[0] / keys, size[1] / queries) || 1 };
  const frame = parse(at.value) ?? fullFrame;
  const move = (next: Frame) => {
    const zoom = Math.min(Math.max(next.zoom, fullFrame.zoom / 2), 64);
    const clamped = { row: clamp(next.row, 0, queries), column: clamp(next.column, 0, keys), zoom };
    at.value = [clamped.row, clamped.column, clamped.zoom].map((x) => Number(x.toPrecision(7))).join(",");
  };

  useEffect(() => {
    if (!size[0]) return;
    const element = canvas.current!;
    const ratio = window.devicePixelRatio || 1;
    [element.width, element.height] = [size[0] * ratio, size[1] * ratio];
    const on = element.getContext("2d")!;
    on.scale(ratio, ratio);
    const painted = paint(on, cache, frame, size, theme, tone, (on.canvas.parentElement && getComputedStyle(element).getPropertyValue("--rule")) || "#ccc");
    if (painted.some((part, i) => part !== [top, masked, drawnTone][i])) setPainted(painted); // the legend says what was drawn
    const accent = getComputedStyle(element).getPropertyValue("--accent").trim();
    outline(on, frame, size, app.row.value, app.column.value, span(brush.value), accent);
    paintMini(mini.current!, cache, frame, size, queries, keys, theme, painted[2], accent);
    ticks(on, frame, size, [rows, columns], [queries, keys], element);
  });

  // Tiles are fetched when the map has come to rest, so that a zoom through ten levels fetches one of them.
  useEffect(() => {
    if (!size[0]) return;
    const timer = setTimeout(() => cache.want(tilesToFetch(built, frame, size)), REST);
    return () => clearTimeout(timer);
  }, [cache, at.value, size[0], size[1], progress]);

  const cellAt = (event: { clientX: number; clientY: number }): [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    const row = frame.row + (event.clientY - box.top - size[1] / 2) / frame.zoom;
    const column = frame.column + (event.clientX - box.left - size[0] / 2) / frame.zoom;
    return [row, column];
  };
  const inside = ([row, column]: [number, number]) => row >= 0 && column >= 0 && row < queries && column < keys;

  const zoomAt = (event: WheelEvent) => {
    event.preventDefault();
    const [row, column] = cellAt(event);
    const factor = Math.exp(-event.deltaY / 300);
    const zoom = Math.min(Math.max(frame.zoom * factor, fullFrame.zoom / 2), 64);
    const share = frame.zoom / zoom;
    move({ row: row + (frame.row - row) * share, column: column + (frame.column - column) * share, zoom });
  };
  useEffect(() => {
    const element = canvas.current!;
    element.addEventListener("wheel", zoomAt, { passive: false });
    return () => element.removeEventListener("wheel", zoomAt);
  });

  const drag = useRef<{ from: [number, number]; frame: Frame; brush: boolean; moved: boolean } | null>(null);
  const down = (event: PointerEvent) => {
    canvas.current!.setPointerCapture(event.pointerId);
    drag.current = { from: [event.clientY, event.clientX], frame, brush: event.shiftKey, moved: false };
  };
  const over = (event: PointerEvent) => {
    const current = drag.current;
    const cell = cellAt(event);
    setHover(inside(cell) ? [Math.floor(cell[0]), Math.floor(cell[1])] : null);
    if (!current) return;
    const [dy, dx] = [event.clientY - current.from[0], event.clientX - current.from[1]];
    if (Math.abs(dy) + Math.abs(dx) > 3) current.moved = true;
    if (current.brush) {
      const start = current.frame.row + (current.from[0] - canvas.current!.getBoundingClientRect().top - size[1] / 2) / frame.zoom;
      const ends = [start, cell[0]].map((x) => clamp(Math.floor(x), 0, queries - 1)).sort((a, b) => a - b);
      brush.value = `${ends[0]}-${ends[1]}`;
    } else if (current.moved) {
      move({ row: current.frame.row - dy / frame.zoom, column: current.frame.column - dx / frame.zoom, zoom: frame.zoom });
    }
  };
  const up = (event: PointerEvent) => {
    const current = drag.current;
    drag.current = null;
    const cell = cellAt(event);
    if (!current || current.moved || !inside(cell)) return;
    app.row.value = Math.floor(cell[0]);
    app.column.value = Math.floor(cell[1]);
  };
  const step = (event: KeyboardEvent) => {
    const page = 0.25;
    const [high, wide] = [size[1] / frame.zoom, size[0] / frame.zoom];
    const moves: Record<string, Frame> = {
      "+": { ...frame, zoom: frame.zoom * 2 },
      "=": { ...frame, zoom: frame.zoom * 2 },
      "-": { ...frame, zoom: frame.zoom / 2 },
      "0": fullFrame,
    };
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (moves[event.key]) move(moves[event.key]);
    else if (by && event.shiftKey) move({ ...frame, row: frame.row + by[0] * page * high, column: frame.column + by[1] * page * wide });
    else if (by) {
      const [row, column] = [app.row.value ?? Math.floor(frame.row), app.column.value ?? Math.floor(frame.column)];
      const cells = Math.max(1, Math.round(1 / frame.zoom)); // of a pixel
      app.row.value = clamp(row + by[0] * cells, 0, queries - 1);
      app.column.value = clamp(column + by[1] * cells, 0, keys - 1);
      app.announcement.value = `${placed(rows, app.row.value)} ← ${placed(columns, app.column.value)}`;
    } else return;
    event.preventDefault();
  };

  const { down: shownCells } = built.levels[level(built, frame.zoom)];
  const sampled = built.strips > 0 && level(built, frame.zoom) >= built.exactLevel && progress !== 1;
  return (
    <div class="deep">
      <div class="sheet">
        <canvas
          ref={canvas}
          class="map"
          style={{ width: `${size[0]}px`, height: `${size[1]}px` }}
          tabIndex={0}
          role="application"
          aria-label={`Map of ${attention.name}, ${queries} rows by ${keys} columns. Arrow keys move the cross, shift and arrow keys the map, plus and minus zoom, 0 shows all.`}
          onPointerDown={down}
          onPointerMove={over}
          onPointerUp={up}
          onPointerLeave={() => setHover(null)}
          onDblClick={(event) => {
            const [row, column] = cellAt(event);
            move({ row, column, zoom: frame.zoom * 2 });
          }}
          onKeyDown={step}
        />
      </div>
      <div class="tools">
        <button type="button" aria-label="Zoom in" onClick={() => move({ ...frame, zoom: frame.zoom * 2 })}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => move({ ...frame, zoom: frame.zoom / 2 })}>
          −
        </button>
        <button type="button" onClick={() => move(fullFrame)}>
          All
        </button>
        <label>
          A pixel shows the{" "}
          <select value={reduce} onChange={(event) => (reduction.value = event.currentTarget.value)}>
            {built.reduces.map((one) => (
              <option key={one} value={one}>
                {one === "max" ? "maximum" : one}
              </option>
            ))}
          </select>
        </label>
        <ToneChoice app={app} />
        <Legend top={top} tone={drawnTone} masked={masked} raster />
        <Export name={`${attention.name}-map`} tiles={() => [{ canvas: canvas.current!, text: [attention.name] }]} />
        {sampled && (
          <span class="note">
            one row of each pixel is shown{" "}
            <button
              type="button"
              disabled={progress !== null}
              onClick={() => {
                setProgress(0);
                cache.refine(setProgress).catch((fault: Error) => {
                  app.error.value = fault.message;
                  setProgress(null);
                });
              }}
            >
              {progress === null ? "use all rows" : `${Math.round(100 * progress)}%`}
            </button>
          </span>
        )}
      </div>
      <p class="hint">
        {shownCells > 1 && `A pixel shows the ${reduce === "max" ? "maximum" : "mean"} of ${shownCells} × ${shownCells} tokens. `}
        {hover ? `${listed(rows, hover[0], shownCells)} ← ${listed(columns, hover[1], shownCells)}` : "Drag to move, scroll to zoom, click a cell for its weight; drag with shift to select rows."}
      </p>
      <div class="beside">
        <ChosenRow {...{ app, source, attention, head, brush: span(brush.value), clear: () => (brush.value = "") }} />
        <canvas ref={mini} class="mini" width={MINI} height={MINI} aria-hidden="true" onClick={(event) => jump(event, queries, keys, frame, move)} />
      </div>
    </div>
  );
}

/** The tokens that a pixel holds: all of them, or the first ones. */
function listed(tokens: string[], place: number, cells: number): string {
  const start = Math.floor(place / cells) * cells;
  const end = Math.min(tokens.length, Math.floor(start + cells)) - 1;
  if (cells <= 1 || end <= start) return placed(tokens, place);
  const some = tokens.slice(Math.floor(start), Math.floor(start) + LISTED).map(pieceText).join(" ");
  return `${some}${cells > LISTED ? " …" : ""} (${Math.floor(start)}–${end})`;
}

const BAND = 15; // pixels of the band that has the labels of the columns
const MARGIN = 46; // and of that of the rows

/** The places at the edges of the map; their tokens where a cell has room for them. */
function ticks(on: CanvasRenderingContext2D, frame: Frame, [width, height]: Size, tokens: [string[], string[]], counts: [number, number], near: Element): void {
  const style = getComputedStyle(near);
  const [ink, paper] = ["--ink", "--paper"].map((name) => style.getPropertyValue(name).trim());
  on.font = "11px system-ui, sans-serif";
  on.textBaseline = "middle";
  const label = (side: number, place: number, room: number) => {
    const text = pieceText(tokens[side][place] ?? "");
    return frame.zoom >= room && text ? `${text.slice(0, 14)}` : String(place);
  };
  on.globalAlpha = 0.85;
  on.fillStyle = paper;
  on.fillRect(0, 0, width, BAND);
  on.fillRect(0, 0, MARGIN, height);
  on.globalAlpha = 1;
  on.fillStyle = ink;
  const each = (side: number, middle: number, extent: number, gap: number, draw: (at: number, place: number) => void) => {
    const step = nice(gap / frame.zoom);
    const start = Math.max(0, Math.ceil((middle - extent / 2 / frame.zoom) / step) * step);
    for (let place = start; place < counts[side] && place < middle + extent / 2 / frame.zoom; place += step) draw((place + 0.5 - middle) * frame.zoom + extent / 2, place);
  };
  on.textAlign = "right";
  each(0, frame.row, height, 14, (y, place) => y > BAND + 6 && on.fillText(label(0, place, 14), MARGIN - 4, y, MARGIN - 6));
  on.textAlign = "center";
  each(1, frame.column, width, 44, (x, place) => x > MARGIN + 12 && on.fillText(label(1, place, 44), x, BAND / 2, 42));
}

/** The smallest of 1, 2, 5, 10, 20 ... that is not below a number. */
function nice(least: number): number {
  for (let power = 1; ; power *= 10) for (const step of [1, 2, 5]) if (step * power >= least) return step * power;
}

const clamp = (x: number, low: number, high: number) => Math.min(Math.max(x, low), high);

function parse(text: string): Frame | null {
  const [row, column, zoom] = text.split(",").map(Number);
  return zoom > 0 && Number.isFinite(row) && Number.isFinite(column) ? { row, column, zoom } : null;
}

function span(text: string): [number, number] | null {
  const range = /^(\d+)-(\d+)$/.exec(text);
  return range ? [Number(range[1]), Number(range[2])] : null;
}

/** The level whose pixels are one or two of the screen wide. */
function level(built: Pyramid, zoom: number): number {
  const level = Math.ceil(Math.log2(Math.max(1, 1 / zoom)) - 1e-6);
  return Math.min(level, built.levels.length - 1);
}

type Size = [number, number];

/** The tiles of a level that the frame shows. */
function visible(built: Pyramid, at: number, frame: Frame, [width, height]: Size): [number, number, number][] {
  const { rows, columns, down, across } = built.levels[at];
  const [high, wide] = [SIZE * down, SIZE * across];
  const edge = frame.column - width / 2 / frame.zoom;
  const above = frame.row - height / 2 / frame.zoom;
  const places: [number, number, number][] = [];
  for (let i = Math.max(0, Math.floor(above / high)); i * SIZE < rows && i * high < above + height / frame.zoom; i++)
    for (let j = Math.max(0, Math.floor(edge / wide)); j * SIZE < columns && j * wide < edge + width / frame.zoom; j++) places.push([at, i, j]);
  return places;
}

/** The tiles to fetch: those of the level that fits the screen, and the last one for the minimap. */
function tilesToFetch(built: Pyramid, frame: Frame, size: Size): [number, number, number][] {
  const top = built.levels.length - 1;
  const finest = level(built, frame.zoom);
  return finest === top ? [[top, 0, 0]] : [...visible(built, finest, frame, size), [top, 0, 0]];
}

/** Draw what is known; returns the end of the colour scale. Coarser tiles stand in for those that are on their way. */
function paint(on: CanvasRenderingContext2D, cache: TileCache, frame: Frame, size: Size, theme: Theme, chosen: Tone | null, rule: string): Painted {
  const { levels } = cache.pyramid;
  const [width, height] = size;
  const finest = level(cache.pyramid, frame.zoom);
  const edge = frame.column - width / 2 / frame.zoom;
  const above = frame.row - height / 2 / frame.zoom;
  const drawable: { at: number; i: number; j: number }[] = [];
  for (let at = levels.length - 1; at >= finest; at--)
    for (const [, i, j] of visible(cache.pyramid, at, frame, size)) if (cache.get(at, i, j)) drawable.push({ at, i, j });
  let longest = 0;
  const fine = drawable.filter(({ at }) => at === finest);
  for (const { at, i, j } of fine.length ? fine : drawable) for (const x of cache.get(at, i, j)!.plane.data) if (x > longest) longest = x;
  const top = roundTop(longest);
  const tone = chosen ?? fitting((fine.length ? fine : drawable).map(({ at, i, j }) => cache.get(at, i, j)!.plane), top);
  let masked = false;
  on.imageSmoothingEnabled = false;
  for (const { at, i, j } of drawable) {
    const { plane } = cache.get(at, i, j)!;
    masked ||= plane.data.some(Number.isNaN);
    const { down, across } = levels[at];
    const x = (j * SIZE * across - edge) * frame.zoom;
    const y = (i * SIZE * down - above) * frame.zoom;
    on.drawImage(bitmap(plane, top, theme, tone), x, y, plane.columns * across * frame.zoom, plane.rows * down * frame.zoom);
  }
  const coarsest = levels[0];
  on.strokeStyle = rule;
  on.strokeRect(-edge * frame.zoom, -above * frame.zoom, coarsest.columns * coarsest.across * frame.zoom, coarsest.rows * coarsest.down * frame.zoom);
  return [top, masked, tone];
}

const bitmaps = new WeakMap<object, { look: string; canvas: HTMLCanvasElement }>();

function bitmap(plane: Plane, top: number, theme: Theme, tone: Tone): HTMLCanvasElement {
  const look = `${top}/${theme}/${tone}`;
  const stored = bitmaps.get(plane);
  if (stored?.look === look) return stored.canvas;
  const canvas = document.createElement("canvas");
  raster(canvas, plane, top, theme, tone);
  bitmaps.set(plane, { look, canvas });
  return canvas;
}

function outline(on: CanvasRenderingContext2D, frame: Frame, [width, height]: [number, number], row: number | null, column: number | null, brush: [number, number] | null, accent: string): void {
  const x = (cell: number) => (cell - frame.column) * frame.zoom + width / 2;
  const y = (cell: number) => (cell - frame.row) * frame.zoom + height / 2;
  on.strokeStyle = accent;
  on.fillStyle = accent;
  if (brush) {
    on.globalAlpha = 0.18;
    on.fillRect(0, y(brush[0]), width, Math.max(1, y(brush[1] + 1) - y(brush[0])));
    on.globalAlpha = 1;
  }
  const thick = Math.max(1, frame.zoom);
  if (row !== null) on.strokeRect(-2, y(row), width + 4, thick);
  if (column !== null) on.strokeRect(x(column), -2, thick, height + 4);
}

function paintMini(canvas: HTMLCanvasElement, cache: TileCache, frame: Frame, [width, height]: [number, number], queries: number, keys: number, theme: Theme, tone: Tone, accent: string): void {
  const on = canvas.getContext("2d")!;
  on.clearRect(0, 0, MINI, MINI);
  const tile = cache.get(cache.pyramid.levels.length - 1, 0, 0);
  const side = Math.max(queries, keys);
  const [wide, high] = [(MINI * keys) / side, (MINI * queries) / side];
  if (tile) {
    const small = document.createElement("canvas");
    raster(small, tile.plane, roundTop(peak(tile.plane)), theme, tone);
    on.imageSmoothingEnabled = Math.max(small.width, small.height) > MINI; // few cells have sharp edges
    on.drawImage(small, 0, 0, wide, high);
  }
  const share = MINI / side;
  on.strokeStyle = accent;
  on.lineWidth = 2;
  const [w, h] = [(width / frame.zoom) * share, (height / frame.zoom) * share];
  on.strokeRect(frame.column * share - w / 2, frame.row * share - h / 2, w, h);
}

function jump(event: MouseEvent, queries: number, keys: number, frame: Frame, move: (next: Frame) => void): void {
  const box = (event.currentTarget as Element).getBoundingClientRect();
  const cells = Math.max(queries, keys) / MINI;
  move({ ...frame, row: (event.clientY - box.top) * cells, column: (event.clientX - box.left) * cells });
}
