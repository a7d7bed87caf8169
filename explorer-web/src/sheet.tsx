// Several canvases with their names, saved as one picture: PNG, or SVG that holds their pixels.

import { useRef } from "preact/hooks";
import { CanvasPen, save, SvgPen } from "./drawing";

const SIZE = 12; // of the letters
const LINE = 16;
const GAP = 12;

export interface Tile {
  canvas: HTMLCanvasElement;
  text: string[]; // lines below it
}

interface ExportProps {
  name: string; // of the files
  tiles: () => Tile[];
  across?: number; // tiles in a row
  width?: number; // of a tile; its own by default
  height?: number;
}

/** Buttons that save a picture of the tiles. */
export function Export(props: ExportProps) {
  const box = useRef<HTMLSpanElement>(null);
  return (
    <span class="tools" ref={box}>
      <button type="button" onClick={() => savePicture(props, box.current!)}>
        PNG
      </button>
      <button type="button" onClick={() => saveDrawing(props, box.current!)}>
        SVG
      </button>
    </span>
  );
}

interface Placed extends Tile {
  x: number;
  y: number;
  width: number;
  height: number;
}

function arranged({ tiles, across = 1, width, height }: ExportProps): { all: Placed[]; width: number; height: number } {
  const drawnTiles = tiles();
  const size = [width ?? drawnTiles[0].canvas.width, height ?? drawnTiles[0].canvas.height];
  const lines = Math.max(...drawnTiles.map((tile) => tile.text.length));
  const [right, down] = [size[0] + GAP, size[1] + lines * LINE + GAP];
  const all = drawnTiles.map((tile, i) => ({ ...tile, x: GAP + (i % across) * right, y: GAP + Math.floor(i / across) * down, width: size[0], height: size[1] }));
  return { all, width: GAP + Math.min(across, drawnTiles.length) * right, height: GAP + Math.ceil(drawnTiles.length / across) * down };
}

function colours(near: Element) {
  const style = getComputedStyle(near);
  const [ink, paper] = ["--ink", "--paper"].map((name) => style.getPropertyValue(name).trim());
  return { ink, paper };
}

function savePicture(props: ExportProps, near: Element): void {
  const { ink, paper } = colours(near);
  const { all, width, height } = arranged(props);
  const page = document.createElement("canvas");
  page.width = width;
  page.height = height;
  const on = page.getContext("2d")!;
  on.fillStyle = paper;
  on.fillRect(0, 0, width, height);
  on.imageSmoothingEnabled = false;
  const pen = new CanvasPen(on, ink);
  for (const tile of all) {
    on.drawImage(tile.canvas, tile.x, tile.y, tile.width, tile.height);
    tile.text.forEach((line, i) => pen.text(tile.x, tile.y + tile.height + (i + 0.6) * LINE, line, { align: "start", colour: ink, size: SIZE }));
  }
  page.toBlob((blob) => blob && save(`${props.name}.png`, blob));
}

function saveDrawing(props: ExportProps, near: Element): void {
  const { ink, paper } = colours(near);
  const { all, width, height } = arranged(props);
  const pen = new SvgPen({ measure: () => 0 }, ink);
  for (const tile of all) {
    pen.image(tile.x, tile.y, tile.width, tile.height, tile.canvas.toDataURL());
    tile.text.forEach((line, i) => pen.text(tile.x, tile.y + tile.height + (i + 0.6) * LINE, line, { align: "start", colour: ink, size: SIZE }));
  }
  save(`${props.name}.svg`, new Blob([pen.svg(width, height, paper)], { type: "image/svg+xml" }));
}
