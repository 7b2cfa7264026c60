import { clamp } from "./layout";
/** Color maps: one hue for weights, blue to red for signed values. Both are safe for color blindness. */

export type Color = readonly [number, number, number];

const STOPS = {
  // Perceptually even steps from the background; the first step is distinct from zero.
  weight: {
    light: ["#f7f9fb", "#d6e5f4", "#9cc3e6", "#4f95cd", "#175fa8", "#08306b"],
    dark: ["#171d25", "#1d3652", "#285c90", "#4a90d4", "#93c4f7", "#e3f0ff"],
  },
  difference: {
    light: ["#1b4f91", "#5b93c9", "#b9d4e9", "#f7f9fb", "#f3c1b2", "#d9685a", "#9c1127"],
    dark: ["#a9d3ff", "#4a90d4", "#25476d", "#171d25", "#6d2b2e", "#d4594f", "#ffc0b5"],
  },
} as const;

export type Colormap = keyof typeof STOPS;
/** Whether weights are scaled to 1 or to the maximum of their row. */
export type ColorScale = "unit" | "row";

function parsed(hex: string): Color {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

// Odd, so that a zero difference has its own color.
const TABLE = 257;

function table(stops: readonly string[]): Color[] {
  const colors = stops.map(parsed);
  return Array.from({ length: TABLE }, (_, index) => {
    const at = (index / (TABLE - 1)) * (colors.length - 1);
    const low = Math.min(colors.length - 2, Math.floor(at));
    const [from, to] = [colors[low], colors[low + 1]];
    if (!from || !to) return [0, 0, 0];
    return [0, 1, 2].map((part) => Math.round((from[part] ?? 0) + ((to[part] ?? 0) - (from[part] ?? 0)) * (at - low))) as unknown as Color;
  });
}

const tables = new Map<string, Color[]>();

/** Color of a value: weights from 0 to 1, differences from −1 to 1, clipped. */
export function colorAt(value: number, colormap: Colormap, dark: boolean): Color {
  const key = `${colormap}${dark}`;
  let colors = tables.get(key);
  if (!colors) tables.set(key, (colors = table(STOPS[colormap][dark ? "dark" : "light"])));
  const share = colormap === "weight" ? value : (value + 1) / 2;
  return colors[Math.round(clamp(share, 1) * (TABLE - 1))] ?? [0, 0, 0];
}

export function cssColor(value: number, colormap: Colormap, dark: boolean): string {
  return `rgb(${colorAt(value, colormap, dark).join(" ")})`;
}

/** Text color with the better contrast on this background, at least 4.5. */
export function textColor(value: number, colormap: Colormap, dark: boolean): "#000" | "#fff" {
  const [r, g, b] = colorAt(value, colormap, dark).map((part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * (r ?? 0) + 0.7152 * (g ?? 0) + 0.0722 * (b ?? 0) > 0.179 ? "#000" : "#fff";
}

/** Number with three decimals, or more if it would round to 1 or 100, with a minus sign. */
export function formatDecimal(value: number, digits = 3): string {
  const near = Math.abs(Number(value.toFixed(digits)));
  if (near > Math.abs(value) && digits < 9 && [1, 100].includes(near)) return formatDecimal(value, digits + 1);
  return value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
}

/** Number with significant digits, or more (up to 9) if it would round to 1 or 100. */
export function formatPrecise(value: number, digits: number): string {
  const near = Number(value.toPrecision(digits));
  return near !== value && digits < 9 && [1, 100].includes(Math.abs(near)) ? formatPrecise(value, digits + 1) : `${near}`;
}

/** Probability with two decimals, or more if it is small. */
export function formatProbability(p: number): string {
  if (p === 0 || p >= 0.99995) return formatPrecise(p, 5);
  if (p >= 0.995) return p.toFixed(4);
  return p >= 0.01 ? p.toFixed(2) : p.toPrecision(1);
}

/** Percentage: 97 %, 0.4 %, < 0.1 %. */
export function formatPercent(share: number): string {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  if (value > 99.9 && value < 100) return "> 99.9 %";
  return `${formatDecimal(value, value >= 10 || value === 0 ? 0 : 1)} %`;
}
