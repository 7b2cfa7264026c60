// Geometry of line charts.
import { formatPrecise } from "./scales";
import type { TaskView } from "../data/contents";
import { metricName } from "../data/taskView";

/** Round tick values from low to high, about `count` and at least two. */
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

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 below two decades; else round values. */
export function logTicks(low: number, high: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low)), Math.log10(high)];
  const interval = Math.ceil((last - first) / 6);
  const levels: number[] = [];
  for (let power = first; power <= last + 1; power++) {
    for (const step of high < 100 * low ? [1, 2, 5] : power % interval ? [] : [1]) {
      const level = Number(`${step}e${power}`);
      if (level >= low * 0.999 && level <= high * 1.001) levels.push(level);
    }
  }
  return levels.length > 1 ? levels : ticks(low, high);
}

/** Ends of a vertical axis, which always differ. */
export function axisRange(heights: number[], logarithmic: boolean, maximum?: number, minimum?: number): [number, number] {
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  if (logarithmic) return low < high ? [low, high] : [low / 2, high * 2];
  return [minimum ?? Math.min(0, low), maximum ?? (Math.max(0, high) || Number(low === 0))];
}

/** Linear scale from the domain [a, b] to the range [c, d]. */
export function linearScale(a: number, b: number, c: number, d: number): (value: number) => number {
  return (value) => (b === a ? (c + d) / 2 : c + ((value - a) / (b - a)) * (d - c));
}

/** Points as an SVG path, with gaps at non-finite values. */
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
  /** Number of samples, and value. */
  points: [number, number][];
}

export interface LogCurves {
  losses: LogSeries[];
  metrics: LogSeries[];
}

/** Series of a log: training loss of updates, metrics of validations. */
export function logSeries(log: Record<string, unknown>[], view: TaskView): LogCurves {
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

/** Downsamples to at most `maximum` points; the minimum and the maximum of each interval are kept. */
export function downsample(points: [number, number][], maximum: number): [number, number][] {
  if (points.length <= maximum) return points;
  const size = Math.ceil((2 * points.length) / maximum);
  const selected: [number, number][] = [];
  for (let start = 0; start < points.length; start += size) {
    const interval = points.slice(start, start + size);
    const low = interval.reduce((best, point) => (point[1] < best[1] ? point : best));
    const high = interval.reduce((best, point) => (point[1] > best[1] ? point : best));
    selected.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]));
  }
  return selected;
}

/** Abbreviated number: 75,000 → 75k. */
export function formatShort(value: number): string {
  if (value < 0) return `−${formatShort(-value)}`;
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return value === 0 || value >= 0.001 ? formatPrecise(value, 3) : value.toExponential(0);
}

/** Plotted point with its interval and label. */
export interface PlotMark {
  x: number;
  y: number;
  low?: number;
  high?: number;
  label?: string;
  /** Axis label, if x is no number, such as a range. */
  tick?: string;
}

export interface PlotLine {
  name: string;
  /** Number of the run, which has one color and one kind of dashes in every chart; default: the index of the line. */
  run?: number;
  /** Number of the quantity, if lines of one run differ in it: they have the color of the run, and different dashes. */
  quantity?: number;
  /** Reference line: gray, without marks. */
  reference?: boolean;
  marks: PlotMark[];
}

/** Band of the intervals as an SVG path. */
export function intervalBand(marks: PlotMark[], x: (value: number) => number, y: (value: number) => number): string {
  const known = marks.filter((mark) => mark.low !== undefined && mark.high !== undefined);
  const corner = (mark: PlotMark, value: number) => `${x(mark.x).toFixed(1)} ${y(value).toFixed(1)}`;
  const up = known.map((mark) => corner(mark, mark.high!));
  const down = known.map((mark) => corner(mark, mark.low!)).reverse();
  return known.length < 2 ? "" : `M${[...up, ...down].join("L")}Z`;
}
