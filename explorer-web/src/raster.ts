// Weights as pixels: one for each cell of a plane, with the colours of a tone.

import { scale, Theme } from "./colour";
import type { Plane } from "./numbers";

/** How weights become places on the colour scale. */
export type Tone = "linear" | "root" | "log";
export const TONES: Record<Tone, string> = { linear: "linear", root: "square root", log: "logarithmic" };
const SMALL = 4096; // cells of the largest picture that is linear in any case
const DECADES = 4; // that a logarithmic scale has

/** A weight's place on the scale that ends at `top`. */
export function share(weight: number, top: number, tone: Tone): number {
  const share = Math.min(Math.max(weight / top, 0), 1);
  if (tone === "root") return Math.sqrt(share);
  return tone === "log" ? Math.max(0, 1 + Math.log10(share) / DECADES) : share;
}

/** The weights at the start and in the middle of the scale. */
export function marks(top: number, tone: Tone): [number, number] {
  if (tone === "root") return [0, top / 4];
  return tone === "log" ? [top * 10 ** -DECADES, top * 10 ** (-DECADES / 2)] : [0, top / 2];
}

/** The scale on which the mean weight of some planes is visible: a long row spreads its weights thin. */
export function fitting(planes: Plane[], top: number): Tone {
  let [sum, count] = [0, 0];
  for (const { data } of planes)
    for (const x of data)
      if (!Number.isNaN(x)) {
        sum += x;
        count++;
      }
  const share = count ? sum / count / top : 1;
  if (count <= SMALL || share > 0.05) return "linear";
  return share > 0.005 ? "root" : "log";
}

const MASKED = { light: [230, 222, 212], dark: [58, 50, 42] };

/** A colour as the bytes of a pixel, red first, on the little-endian machines that browsers run on. */
const packed = ([red, green, blue]: Iterable<number>) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Paint a plane on a canvas of its size; the style sheet makes it larger. */
export function raster(canvas: HTMLCanvasElement, { rows, columns, data }: Plane, top: number, theme: Theme, tone: Tone): void {
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = scale(theme);
  const palette = Array.from({ length: 256 }, (_, i) => packed(colours.subarray(3 * i, 3 * i + 3)));
  const masked = packed(MASKED[theme]);
  for (let i = 0; i < data.length; i++) pixels[i] = Number.isNaN(data[i]) ? masked : palette[Math.round(255 * share(data[i], top, tone))];
  canvas.getContext("2d")!.putImageData(image, 0, 0);
}
