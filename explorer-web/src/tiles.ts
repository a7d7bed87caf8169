// Tiles of a head: 256 x 256 numbers at a level, from the server or pooled here. No tile is fetched twice.

import type { Attention } from "./contract";
import type { Plane } from "./numbers";
import { failure, posted } from "./server";
import type { Source } from "./source";

export const SIZE = 256;
export type Reduce = "max" | "mean";

export interface Level {
  rows: number;
  columns: number;
  down: number; // cells of a pixel
  across: number;
}

export interface Tile {
  plane: Plane;
  exact: boolean;
}

/** The pyramid of one head. */
export interface Pyramid {
  levels: Level[];
  strips: number; // parts of the pass that makes the upper levels exact
  tile(level: number, row: number, column: number, reduce: Reduce, abort: AbortSignal): Promise<Tile>;
  refine(strip: number, reduce: Reduce, abort: AbortSignal): Promise<void>;
  exactLevel: number; // the lowest level that needs the pass
  reduces: Reduce[]; // what a pixel can show
}

const BOTH: Reduce[] = ["max", "mean"];

export async function pyramid(source: Source, attention: Attention, head: number): Promise<Pyramid> {
  if (source.whole(attention)) return new Local(source.plane(attention, head));
  if (source.header.run === null) return new Drawn(source.overview(attention, head), attention);
  const address = { attention: attention.name, head };
  const answer = await source.ask(source.url("levels", address));
  if (!answer.ok) throw new Error(await failure(answer));
  const { levels, strips } = (await answer.json()) as { levels: Level[]; strips: number };
  return new Remote(source, address, levels, strips);
}

/** The picture of a head in a file that is too large to have all its weights. */
class Drawn implements Pyramid {
  readonly levels: Level[];
  readonly strips = 0;
  readonly exactLevel = 64;
  readonly reduces: Reduce[] = ["max"];

  constructor(
    private readonly plane: Plane,
    { shape: [, queries, keys] }: Attention,
  ) {
    const { rows, columns } = plane;
    this.levels = [{ rows, columns, down: queries / rows, across: keys / columns }];
  }

  async tile(): Promise<Tile> {
    return { plane: this.plane, exact: true };
  }

  async refine(): Promise<void> {}
}

class Remote implements Pyramid {
  readonly reduces = BOTH;
  readonly exactLevel = 5;

  constructor(
    private readonly source: Source,
    private readonly address: { attention: string; head: number },
    readonly levels: Level[],
    readonly strips: number,
  ) {}

  async tile(level: number, row: number, column: number, reduce: Reduce, abort: AbortSignal): Promise<Tile> {
    const answer = await this.source.ask(this.source.url("tile", { ...this.address, level, row, column, reduce }), { signal: abort });
    if (!answer.ok) throw new Error(await failure(answer));
    const data = new Float32Array(await answer.arrayBuffer());
    const columns = Math.min(SIZE, this.levels[level].columns - column * SIZE);
    return { plane: { rows: data.length / columns, columns, data }, exact: answer.headers.get("X-Exact") === "1" };
  }

  async refine(strip: number, reduce: Reduce, abort: AbortSignal): Promise<void> {
    const answer = await this.source.ask("api/refine", posted({ run: this.source.header.run, ...this.address, strip, reduce }, abort));
    if (!answer.ok) throw new Error(await failure(answer));
  }
}

class Local implements Pyramid {
  readonly reduces = BOTH;
  readonly levels: Level[] = [];
  readonly strips = 0;
  readonly exactLevel = 64;

  constructor(private readonly plane: Plane) {
    for (let cells = 1; ; cells *= 2) {
      const level = { rows: Math.ceil(plane.rows / cells), columns: Math.ceil(plane.columns / cells), down: cells, across: cells };
      this.levels.push(level);
      if (Math.max(level.rows, level.columns) <= SIZE) break;
    }
  }

  async tile(level: number, row: number, column: number, reduce: Reduce): Promise<Tile> {
    const { rows, columns, down } = this.levels[level];
    const height = Math.min(SIZE, rows - row * SIZE);
    const width = Math.min(SIZE, columns - column * SIZE);
    const data = new Float32Array(height * width);
    for (let i = 0; i < height; i++) for (let j = 0; j < width; j++) data[i * width + j] = this.pool((row * SIZE + i) * down, (column * SIZE + j) * down, down, reduce);
    return { plane: { rows: height, columns: width, data }, exact: true };
  }

  async refine(): Promise<void> {}

  private pool(top: number, left: number, cells: number, reduce: Reduce): number {
    const { rows, columns, data } = this.plane;
    let highest = 0;
    let sum = 0;
    let count = 0;
    let open = false;
    for (let i = top; i < Math.min(top + cells, rows); i++)
      for (let j = left; j < Math.min(left + cells, columns); j++) {
        const x = data[i * columns + j];
        count++;
        if (Number.isNaN(x)) continue;
        open = true;
        sum += x;
        if (x > highest) highest = x;
      }
    if (!open) return NaN;
    return reduce === "max" ? highest : sum / count;
  }
}

/** Tiles that were fetched or are being fetched. */
export class TileCache {
  private loaded = new Map<string, Tile>();
  private requests = new Map<string, AbortController>();
  private closed = new AbortController();

  constructor(
    readonly pyramid: Pyramid,
    readonly reduce: Reduce,
    private readonly arrived: () => void,
    private readonly failed: (reason: string) => void,
  ) {}

  get(level: number, row: number, column: number): Tile | undefined {
    return this.loaded.get(`${level}/${row}/${column}`);
  }

  /** Fetch the tiles that are wanted now, and stop fetching those that are wanted no longer. */
  want(places: [number, number, number][]): void {
    const names = new Set(places.map((place) => place.join("/")));
    for (const [name, abort] of this.requests)
      if (!names.has(name)) {
        abort.abort();
        this.requests.delete(name);
      }
    for (const place of places) {
      const name = place.join("/");
      if (!this.loaded.has(name) && !this.requests.has(name)) void this.fetch(name, place);
    }
  }

  private async fetch(name: string, [level, row, column]: [number, number, number]): Promise<void> {
    const abort = new AbortController();
    this.requests.set(name, abort);
    try {
      this.loaded.set(name, await this.pyramid.tile(level, row, column, this.reduce, abort.signal));
      this.arrived();
    } catch (fault) {
      if (!abort.signal.aborted) this.failed((fault as Error).message);
    } finally {
      if (this.requests.get(name) === abort) this.requests.delete(name);
    }
  }

  /** Forget the tiles that were drawn from a sample: they can now be exact. */
  forgetSamples(): void {
    for (const [name, tile] of this.loaded) if (!tile.exact) this.loaded.delete(name);
    this.arrived();
  }

  /** The pass over all weights, part by part; `progress` is given the share done. */
  async refine(progress: (share: number) => void): Promise<void> {
    const { strips } = this.pyramid;
    for (let strip = 0; strip < strips && !this.closed.signal.aborted; strip++) {
      await this.pyramid.refine(strip, this.reduce, this.closed.signal);
      progress((strip + 1) / strips);
    }
    this.forgetSamples();
  }

  close(): void {
    this.closed.abort();
    this.want([]);
  }
}
