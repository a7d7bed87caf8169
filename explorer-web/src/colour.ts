// The colour scale of Regard's pictures (viewing/colours.py): anchors mixed in OKLab (Björn Ottosson, 2020).

const ANCHORS = {
  light: ["#eff2f4", "#b9d5e6", "#6ba6cf", "#2c6fad", "#174680", "#0b2349"],
  dark: ["#1b222b", "#17405f", "#1f6b94", "#3f9cc0", "#86cddd", "#e4f7f4"],
};
// Differences: below 0 and above 0, around the background. Orange and blue can be told apart with any colour vision.
const DIVERGING = {
  light: ["#8a3b00", "#d9762a", "#f3c99f", "#f4f4f2", "#a9cce3", "#3f86bf", "#0f3d73"],
  dark: ["#ffc089", "#d9762a", "#6b3a14", "#1b222b", "#17405f", "#3f9cc0", "#b9e6f2"],
};

type Triple = [number, number, number];
export type Theme = "light" | "dark";
export type Scale = Uint8ClampedArray; // 256 colours of 3 bytes

const linear = (x: number) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
const gamma = (x: number) => (x <= 0.0031308 ? 12.92 * Math.max(x, 0) : 1.055 * Math.min(x, 1) ** (1 / 2.4) - 0.055);

function toLab(colour: string): Triple {
  const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(colour.slice(at, at + 2), 16) / 255));
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromLab([L, a, b]: Triple): Triple {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function scaleOf(anchors: string[]): Scale {
  const labs = anchors.map(toLab);
  const out = new Uint8ClampedArray(768);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (labs.length - 1);
    const index = Math.min(Math.floor(place), labs.length - 2);
    const fraction = place - index;
    const mixed = labs[index].map((x, k) => x + fraction * (labs[index + 1][k] - x)) as Triple;
    fromLab(mixed).forEach((x, k) => (out[3 * i + k] = Math.round(255 * x)));
  }
  return out;
}

const made = new Map<string, Scale>();

/** 256 colours for shares from 0 to 1, or for differences from -1 to 1. */
export function scale(theme: Theme, diverging = false): Scale {
  const name = theme + diverging;
  let scale = made.get(name);
  if (!scale) made.set(name, (scale = scaleOf((diverging ? DIVERGING : ANCHORS)[theme])));
  return scale;
}

export function css(of: Scale, share: number): string {
  const at = 3 * Math.round(255 * Math.min(Math.max(share, 0), 1));
  return `rgb(${of[at]} ${of[at + 1]} ${of[at + 2]})`;
}

/** Black or white, the one with more contrast on the colour (WCAG 2.2). */
export function ink(of: Scale, share: number): string {
  const at = 3 * Math.round(255 * Math.min(Math.max(share, 0), 1));
  const [r, g, b] = [of[at], of[at + 1], of[at + 2]].map((x) => linear(x / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.184 ? "#080b10" : "#ffffff";
}
