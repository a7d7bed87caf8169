// Weights as pixels: one for each cell of a plane, with the colours of a tone.

import { scale, Theme } from "./colour";
import type { Plane } from "./numbers";

/** How weights become places on the colour scale. */
export type Tone = "linear" | "root" | "log";
export const TONES: Record<Tone, string> = { linear: "linear", root: "square root", log: "logarithmic" };
const DECADES = 4; // that a logarithmic scale has

/** A weight's place on the scale that ends at `top`. */
export function share(weight: number, top: number, tone: Tone): number {
  const part = Math.min(Math.max(weight / top, 0), 1);
  if (tone === "root") return Math.sqrt(part);
  return tone === "log" ? Math.max(0, 1 + Math.log10(part) / DECADES) : part;
}

/** The weights at the start and in the middle of the scale. */
export function marks(top: number, tone: Tone): [number, number] {
  if (tone === "root") return [0, top / 4];
  return tone === "log" ? [top * 10 ** -DECADES, top * 10 ** (-DECADES / 2)] : [0, top / 2];
}

const MASKED = { light: [230, 222, 212], dark: [58, 50, 42] };

/** Paint a plane on a canvas of its size; the style sheet makes it larger. */
export function raster(canvas: HTMLCanvasElement, { rows, columns, data }: Plane, top: number, theme: Theme, tone: Tone): void {
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const colours = scale(theme);
  for (let i = 0; i < data.length; i++) {
    const at = 3 * Math.round(255 * share(data[i], top, tone));
    const colour = Number.isNaN(data[i]) ? MASKED[theme] : [colours[at], colours[at + 1], colours[at + 2]];
    image.data.set([...colour, 255], 4 * i);
  }
  canvas.getContext("2d")!.putImageData(image, 0, 0);
}
