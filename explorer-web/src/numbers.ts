// How numbers are written, and what is computed from weights in the browser.

import type { Word } from "./contract";

/** A share as a person reads it: 71%, 2.4%, 0%. */
export function percent(weight: number | null | undefined): string {
  if (weight === null || weight === undefined || Number.isNaN(weight)) return "masked";
  const value = 100 * weight;
  if (value !== 0 && Math.abs(value) < 0.05) return "<0.1%";
  return (Math.abs(value) >= 9.5 || value === 0 ? value.toFixed(0) : value.toFixed(1)) + "%";
}

export const fixed = (value: number | null | undefined, digits = 3) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits).replace("-", "−");

/** The end of a colour scale: the smallest of 1, 0.5, 0.2, 0.1 ... that fits, so that pictures compare. */
export function roundTop(largest: number): number {
  if (!(largest > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  for (const step of [1, 2, 5, 10]) if (largest <= step * power * (1 + 1e-9)) return step * power;
  return 10 * power;
}

export interface Plane {
  rows: number;
  columns: number;
  data: Float32Array; // row after row; NaN: masked
}

export function peak(plane: Plane): number {
  let largest = 0;
  for (const x of plane.data) if (x > largest) largest = x;
  return largest;
}

/** Subwords merged into words: weights are summed over keys and averaged over queries. */
export function merge(plane: Plane, down: Word[], across: Word[]): Plane {
  const data = new Float32Array(down.length * across.length);
  down.forEach(([top, bottom], i) =>
    across.forEach(([left, right], j) => {
      let sum = 0;
      let open = false;
      for (let r = top; r < bottom; r++)
        for (let c = left; c < right; c++) {
          const x = plane.data[r * plane.columns + c];
          if (!Number.isNaN(x)) {
            sum += x;
            open = true;
          }
        }
      data[i * across.length + j] = open ? sum / (bottom - top) : NaN;
    }),
  );
  return { rows: down.length, columns: across.length, data };
}

export function difference(left: Plane, right: Plane): Plane | null {
  if (left.rows !== right.rows || left.columns !== right.columns) return null;
  return { ...left, data: left.data.map((x, i) => right.data[i] - x) };
}
