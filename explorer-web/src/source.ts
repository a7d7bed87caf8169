// Where weights come from: the bundle itself, and for long sequences the server that made it.

import { Attention, Bundle, widen } from "./contract";
import type { Measures } from "./contract";
import type { Plane } from "./numbers";
import type { Ask } from "./server";
import { failure } from "./server";

const PICTURE = 128; // columns of a picture
export const MEAN = -1; // the head number of the mean of all heads

/** The weights of one run. */
export class Source {
  private planes = new Map<string, Plane>();
  private pictures = new Map<string, Plane>();
  private measured = new Map<string, Promise<Measures>>();

  constructor(
    readonly bundle: Bundle,
    readonly ask: Ask,
  ) {}

  get header() {
    return this.bundle.header;
  }

  attention(name: string): Attention | undefined {
    return this.header.attentions.find((one) => one.name === name);
  }

  /** Whether each weight of the attention is in the bundle. */
  whole(attention: Attention): boolean {
    return attention.weights !== undefined;
  }

  /** How many weights of each row and head there are, of an attention in a file that is too large to have them all; else 0. */
  partial(attention: Attention): number {
    return this.whole(attention) || this.header.run !== null ? 0 : attention.top!.count;
  }

  /** All weights of a head, or of the mean of the heads; only where `whole`. */
  plane(attention: Attention, head: number): Plane {
    const name = `${attention.name}/${head}`;
    let plane = this.planes.get(name);
    if (!plane) this.planes.set(name, (plane = head === MEAN ? this.mean(attention) : this.cut(attention, head)));
    return plane;
  }

  /** A picture of a head for a small map: its weights if they are few, else their maxima over bins. */
  overview(attention: Attention, head: number): Plane {
    if (this.whole(attention)) return this.plane(attention, head);
    const name = `${attention.name}/${head}/map`;
    let plane = this.planes.get(name);
    if (!plane) this.planes.set(name, (plane = head === MEAN ? this.meanMap(attention) : this.cutMap(attention, head)));
    return plane;
  }

  /** Whether there is a picture of the attention in the bundle. */
  drawn(attention: Attention): boolean {
    return this.whole(attention) || attention.map !== undefined;
  }

  /** The weights of one query; where they are not in the bundle, from the server, else the largest alone. */
  async row(attention: Attention, head: number, query: number): Promise<Float32Array> {
    const keys = attention.shape[2];
    if (this.whole(attention)) return this.plane(attention, head).data.subarray(query * keys, (query + 1) * keys);
    if (this.header.run !== null) {
      const answer = await this.ask(this.url("row", { attention: attention.name, head, query }));
      if (!answer.ok) throw new Error(await failure(answer));
      return new Float32Array(await answer.arrayBuffer());
    }
    return this.largest(attention, head, query);
  }

  /** The mean of the rows of some queries, both ends included. */
  async rows(attention: Attention, head: number, from: number, to: number): Promise<Float32Array> {
    if (!this.whole(attention) && this.header.run !== null) {
      const answer = await this.ask(this.url("received", { attention: attention.name, head, from, to }));
      if (!answer.ok) throw new Error(await failure(answer));
      return new Float32Array(await answer.arrayBuffer());
    }
    const out = new Float32Array(attention.shape[2]);
    for (let query = from; query <= to; query++) {
      const row = await this.row(attention, head, query);
      row.forEach((x, j) => (out[j] += (x || 0) / (to - from + 1)));
    }
    return out;
  }

  url(what: string, query: Record<string, string | number>): string {
    const parameters = new URLSearchParams({ run: this.header.run ?? "" });
    for (const [name, value] of Object.entries(query)) parameters.set(name, String(value));
    return `api/${what}?${parameters}`;
  }

  /** The rollout of a stack of layers; only where the bundle has it. */
  rollout(buffer: number, tokens: number): Plane {
    return { rows: tokens, columns: tokens, data: this.bundle.float16(buffer, 0, tokens * tokens) };
  }

  /** One row of a rollout, from the server. */
  async rolloutRow(stack: number, query: number, abort: AbortSignal): Promise<Float32Array> {
    return new Float32Array(await this.bytes("rollout", { stack, query }, abort));
  }

  /** The picture of a head of a long text, from the server; for a small map from one row of each bin, which is not `exact`. */
  async picture(attention: Attention, head: number, exact: boolean, abort: AbortSignal): Promise<Plane> {
    if (this.drawn(attention)) return this.overview(attention, head);
    const name = `${attention.name}/${head}/${exact}`;
    let plane = this.pictures.get(name);
    if (!plane) {
      const data = new Float32Array(await this.bytes("picture", { attention: attention.name, head, exact: Number(exact) }, abort));
      const columns = Math.min(PICTURE, attention.shape[2]);
      this.pictures.set(name, (plane = { rows: data.length / columns, columns, data }));
    }
    return plane;
  }

  /** The measures of an attention; those of long texts come from the server, and stay in the header. */
  async measures(attention: Attention): Promise<Measures> {
    if (attention.measures) return attention.measures;
    let request = this.measured.get(attention.name);
    if (!request) {
      request = this.ask(this.url("measures", { attention: attention.name })).then(async (answer) => {
        if (!answer.ok) throw new Error(await failure(answer));
        const { measures, sampled } = (await answer.json()) as { measures: Measures; sampled?: number };
        attention.sampled = sampled;
        return (attention.measures = measures);
      });
      this.measured.set(attention.name, request);
    }
    return request;
  }

  private async bytes(what: string, query: Record<string, string | number>, abort: AbortSignal): Promise<ArrayBuffer> {
    const answer = await this.ask(this.url(what, query), { signal: abort });
    if (!answer.ok) throw new Error(await failure(answer));
    return answer.arrayBuffer();
  }

  private cut(attention: Attention, head: number): Plane {
    const [, rows, columns] = attention.shape;
    const bytes = this.bundle.buffer(attention.weights!.buffer);
    const size = 2 * rows * columns;
    return { rows, columns, data: widen(bytes.subarray(head * size, (head + 1) * size)) };
  }

  private mean(attention: Attention): Plane {
    return average(attention.heads.map((_, head) => this.plane(attention, head)));
  }

  private cutMap(attention: Attention, head: number): Plane {
    const { buffer, height, width, peaks } = attention.map!;
    const size = height * width;
    const bytes = this.bundle.buffer(buffer).subarray(head * size, (head + 1) * size);
    return { rows: height, columns: width, data: Float32Array.from(bytes, (x) => (x === 255 ? NaN : (x * peaks[head]) / 254)) };
  }

  private meanMap(attention: Attention): Plane {
    return average(attention.heads.map((_, head) => this.cutMap(attention, head)));
  }

  private largest(attention: Attention, head: number, query: number): Float32Array {
    const [, queries, keys] = attention.shape;
    const { keys: at, weights, count } = attention.top!;
    const out = new Float32Array(keys);
    const heads = head === MEAN ? attention.heads.map((_, i) => i) : [head];
    for (const number of heads) {
      const from = (number * queries + query) * count;
      const places = this.bundle.int32(at, from, count);
      const values = this.bundle.float16(weights, from, count);
      places.forEach((place, i) => {
        if (place >= 0) out[place] += values[i] / heads.length;
      });
    }
    return out;
  }
}

function average(planes: Plane[]): Plane {
  const [firstPlane] = planes;
  const data = new Float32Array(firstPlane.data.length);
  for (let i = 0; i < data.length; i++) {
    let sum = 0;
    let open = false;
    for (const plane of planes) {
      const x = plane.data[i];
      if (!Number.isNaN(x)) {
        sum += x;
        open = true;
      }
    }
    data[i] = open ? sum / planes.length : NaN;
  }
  return { rows: firstPlane.rows, columns: firstPlane.columns, data };
}
