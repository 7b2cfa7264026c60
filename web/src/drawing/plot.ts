// Lines and marks on axes: the numbers behind them. Pure.
import { formatPrecise } from "./scales";
import type { TaskView } from "../data/contents";
import { metricName } from "../data/taskView";

/** Round numbers from low to high, about `count` of them and two at least. */
export function ticks(low: number, high: number, count = 5): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((multiple) => multiple * power >= rough)! * power;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  if (first >= last) return ticks(low, high, count + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

/** Powers of ten from low to high, not all of many; 2 and 5 of each too below two decades; or else round numbers. */
export function logTicks(low: number, high: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low)), Math.log10(high)];
  const every = Math.ceil((last - first) / 6);
  const found: number[] = [];
  for (let power = first; power <= last + 1; power++) {
    for (const step of high < 100 * low ? [1, 2, 5] : power % every ? [] : [1]) {
      const level = Number(`${step}e${power}`);
      if (level >= low * 0.999 && level <= high * 1.001) found.push(level);
    }
  }
  return found.length > 1 ? found : ticks(low, high);
}

/** The ends of a vertical axis, those that are given or those of the values; they always differ. */
export function axisRange(heights: number[], logarithmic: boolean, most?: number, least?: number): [number, number] {
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  if (logarithmic) return low < high ? [low, high] : [low / 2, high * 2];
  return [least ?? Math.min(0, low), most ?? (Math.max(0, high) || Number(low === 0))];
}

/** From a value to its place: domain [a, b] onto range [c, d]. */
export function linearScale(a: number, b: number, c: number, d: number): (value: number) => number {
  return (value) => (b === a ? (c + d) / 2 : c + ((value - a) / (b - a)) * (d - c));
}

/** Points as an SVG path; a gap where a value is not finite. */
export function svgPath(points: [number, number][]): string {
  let pen = "M";
  let drawn = "";
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      pen = "M";
      continue;
    }
    drawn += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return drawn;
}

export interface LogSeries {
  name: string;
  color?: number;
  run?: number;
  /** Samples seen, and the value then. */
  points: [number, number][];
}

/** Lines of a log as one series a number: the training loss from its steps, every metric from its validations. */
export function logSeries(log: Record<string, unknown>[], view: TaskView): { losses: LogSeries[]; metrics: LogSeries[] } {
  const losses = new Map<string, LogSeries>();
  const metrics = new Map<string, LogSeries>();
  const add = (to: Map<string, LogSeries>, name: string | null, at: number, value: unknown) => {
    if (name === null || typeof value !== "number" || !Number.isFinite(value)) return;
    if (!to.has(name)) to.set(name, { name, points: [] });
    to.get(name)!.points.push([at, value]);
  };
  for (const line of log) {
    const at = Number(line.samples ?? line.update ?? 0);
    if (line.event === "stepped") add(losses, "training loss", at, line.loss);
    if (line.event !== "validated") continue;
    for (const [name, value] of Object.entries(line)) {
      if (["update", "samples", "epoch", "seconds", "best", "validation"].includes(name)) continue;
      if (name === "loss") add(losses, "validation loss", at, value);
      else if (name.endsWith("loss")) add(losses, `${name.replaceAll("_", " ")}, mean`, at, value);
      else add(metrics, metricName(view, name), at, value);
    }
  }
  return { losses: [...losses.values()], metrics: [...metrics.values()] };
}

/** At most `most` points: the first and last of each stretch's least and greatest stay, so that spikes are seen. */
export function downsample(points: [number, number][], most: number): [number, number][] {
  if (points.length <= most) return points;
  const size = Math.ceil((2 * points.length) / most);
  const kept: [number, number][] = [];
  for (let start = 0; start < points.length; start += size) {
    const stretch = points.slice(start, start + size);
    const low = stretch.reduce((best, point) => (point[1] < best[1] ? point : best));
    const high = stretch.reduce((best, point) => (point[1] > best[1] ? point : best));
    kept.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]));
  }
  return kept;
}

/** A large number short: 75,000 → 75k. */
export function formatShort(value: number): string {
  if (value < 0) return `−${formatShort(-value)}`;
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return value === 0 || value >= 0.001 ? formatPrecise(value, 3) : value.toExponential(0);
}

/** A point to draw: its interval, and what the reader is told of it. */
export interface PlotMark {
  x: number;
  y: number;
  low?: number;
  high?: number;
  label?: string;
  /** What stands below the axis there, where it is no number: a range of them. */
  tick?: string;
}

export interface PlotLine {
  name: string;
  /** Lines of one quantity share a color; those of the n-th other run have the n-th kind of dashes. */
  color?: number;
  run?: number;
  /** Whether it is there to compare others with: gray, without marks. */
  reference?: boolean;
  marks: PlotMark[];
}

/** The band between the marks' intervals. */
export function intervalBand(marks: PlotMark[], x: (value: number) => number, y: (value: number) => number): string {
  const known = marks.filter((mark) => mark.low !== undefined && mark.high !== undefined);
  const corner = (mark: PlotMark, value: number) => `${x(mark.x).toFixed(1)} ${y(value).toFixed(1)}`;
  const up = known.map((mark) => corner(mark, mark.high!));
  const down = known.map((mark) => corner(mark, mark.low!)).reverse();
  return known.length < 2 ? "" : `M${[...up, ...down].join("L")}Z`;
}
