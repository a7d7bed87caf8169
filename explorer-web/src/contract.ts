// The data contract with Python (docs/how-it-works/explorer.md): a bundle is a JSON header and binary buffers.

export type Kind = "self" | "causal" | "cross";

export interface Buffer {
  offset: number;
  length: number;
}

/** A word: the tokens [start, stop) and their text. */
export type Word = [number, number, string];

export interface Sequence {
  name: string;
  tokens: string[];
  words: Word[];
}

export interface Measures {
  [name: string]: (number | null)[];
}

/** One attention: its heads share the rows and the columns. */
export interface Attention {
  name: string;
  kind: Kind;
  rows: number; // index of a sequence
  columns: number;
  heads: number[]; // the numbers of the heads in the model
  shape: [number, number, number]; // heads, queries, keys
  measures?: Measures; // of long texts a server sends them when they are asked for
  sampled?: number; // how many queries they were computed from, if not from all
  weights?: { buffer: number }; // float16 (heads, queries, keys); NaN: masked
  map?: { buffer: number; height: number; width: number; peaks: number[] }; // uint8 (heads, height, width) of 254 x weight / peak; 255: masked
  top?: { keys: number; weights: number; count: number }; // int32 and float16 (heads, queries, count); key -1: none
}

export interface Candidate {
  text: string;
  score: number;
  log_probability: number;
}

/** A beginning of a translation that a beam search kept or dropped: a parent comes before its children. */
export interface BeamNode {
  parent: number; // -1: none
  piece: string;
  score: number; // the log-probability of the beginning
  kept: boolean;
  prefix: string; // the beginning as text
}

export interface Translation {
  text: string;
  translation: string;
  score: number;
  log_probability: number;
  probabilities: number[];
  candidates: Candidate[];
  beam?: BeamNode[];
  notes: string[];
}

/** A line as `regard translate` prints it. */
export interface Printed {
  text: string;
  quality: number | null; // the probability that it is good
  doubts: string[];
  terms: Record<string, string>; // those that were placed
  overlapping: string[]; // terms that overlap longer ones
}

/** Gold links between words, or tokens where there are no words: (column, row) of the attentions named. */
export interface Links {
  of: string[];
  sure: [number, number][];
  possible: [number, number][];
}

/** A token that may come next. */
export interface Next {
  id: number;
  token: string;
  log_probability: number;
  before?: number | null; // in the run that this one is compared with; null: it is not among its 100 likeliest
}

/** A prompt, and what a language model made of it. */
export interface Prompt {
  text: string; // of an encoder-decoder its source
  target?: string | null; // of an encoder-decoder
  chat: boolean;
  template: boolean; // whether the model has a chat template
  log_probabilities: (number | null)[]; // of each token after those before it
  next: Next[][]; // after each token, the likeliest first
  edited: boolean;
  moved: boolean; // whether the attentions are what each key moves, in place of weights
}

/** The rollout of a stack of layers: float16 (queries, keys); without a buffer the server has its rows, or there is an objection. */
export interface Rollout {
  of: string[];
  buffer?: number;
  objection?: string;
}

export interface Header {
  version: number;
  title: string;
  model: string;
  run: string | null; // the id of this run on the server; null in a file
  sequences: Sequence[];
  attentions: Attention[];
  translation: Translation | null;
  prompt?: Prompt;
  rollouts: Rollout[];
  links: Links | null;
  buffers: Buffer[];
  [more: string]: unknown;
}

const VERSION = 3;
const MAGIC = 0x44524752; // "RGRD", little endian

export class Bundle {
  constructor(
    readonly header: Header,
    private readonly bytes: Uint8Array,
    private readonly start: number,
  ) {}

  static parse(bytes: Uint8Array): Bundle {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < 12 || view.getUint32(0, true) !== MAGIC) throw new Error("these bytes are not data of Regard");
    const version = view.getUint32(4, true);
    if (version !== VERSION) throw new Error(`the data has version ${version}, this page reads version ${VERSION}`);
    const length = view.getUint32(8, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(12, 12 + length))) as Header;
    return new Bundle(header, bytes, 12 + length);
  }

  buffer(index: number): Uint8Array {
    const { offset, length } = this.header.buffers[index];
    return this.bytes.subarray(this.start + offset, this.start + offset + length);
  }

  /** The numbers of a buffer from one place on. */
  float16(index: number, from: number, count: number): Float32Array {
    return widen(this.buffer(index).subarray(2 * from, 2 * (from + count)));
  }

  int32(index: number, from: number, count: number): Int32Array {
    return new Int32Array(this.buffer(index).slice(4 * from, 4 * (from + count)).buffer);
  }
}

/** Half precision numbers, little endian, as floats. */
export function widen(bytes: Uint8Array): Float32Array {
  const out = new Float32Array(bytes.length / 2);
  for (let i = 0; i < out.length; i++) out[i] = HALF[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
  return out;
}

const HALF = table();

function table(): Float32Array {
  const out = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) out[bits] = fraction ? NaN : sign * Infinity;
    else if (exponent === 0) out[bits] = sign * fraction * 2 ** -24;
    else out[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return out;
}
