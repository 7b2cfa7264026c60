/** Grids as pixels. */
import { maxMagnitude, row, type Grid } from "../data/arrays";
import { rangeSize, type IndexRange } from "./layout";
import type { Colormap, ColorScale } from "./scales";

/** Weights above the uniform weight, scaled to a maximum of 1; uniform weights become 0. */
export function aboveUniform(weights: Float32Array): Float32Array {
  const uniform = weights.reduce((sum, each) => sum + each, 0) / Math.max(1, weights.length);
  const maximum = Math.max(weights.reduce((top, each) => Math.max(top, each), 0) - uniform, 2 * uniform, 1e-9);
  return weights.map((each) => Math.max(0, each - uniform) / maximum);
}

/** Maximum weight, at least of the first rows. */
export const maxWeight = (grid: Grid): number => Math.max(0, ...grid.values.subarray(0, 100_000));

/** With more columns, a cell is about one pixel wide. */
const MAX_UNSCALED_COLUMNS = 200;
/** Color scale that makes weights visible: 0 to 1, or scaled by row if all weights are small or all grids are wide. */
export const chooseScale = (...grids: Grid[]): ColorScale => (grids.every((grid) => grid.columns > MAX_UNSCALED_COLUMNS || maxWeight(grid) < 0.35) ? "row" : "unit");

/** With more positions, only weight above the uniform weight is shown if rows are scaled. */
export const MAX_UNSHIFTED_POSITIONS = 60;

/** Tints of one step: weights above the uniform weight, or values scaled by their maximum. */
export function stepTints(grid: Grid, colormap: Colormap, step: number): Float32Array {
  const values = row(grid, step);
  return colormap === "weight" ? aboveUniform(values) : scaleByMaximum({ rows: 1, columns: values.length, values: values }).values;
}

/** Whether vectors are gates (between 0 and 1) instead of states, and the maximum of their color scale. */
export function stateRange({ values }: Grid): [boolean, number] {
  const isGate = values.every((value) => value >= 0);
  return [isGate, isGate ? 1 : values.reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 1e-6)];
}

/** Scales each row by its maximum magnitude; if `above`, only weight above the uniform weight. */
export function scaleByRow(grid: Grid, above = false): Grid {
  const values = new Float32Array(grid.values.length);
  for (let step = 0; step < grid.rows; step++) {
    const start = step * grid.columns;
    const rowValues = grid.values.subarray(start, start + grid.columns);
    const uniform = above ? rowValues.reduce((sum, each) => sum + each, 0) / grid.columns : 0;
    const maximum = rowValues.reduce((top, each) => Math.max(top, Math.abs(each)), 0) - uniform;
    rowValues.forEach((each, index) => (values[start + index] = above ? Math.max(0, each - uniform) / (maximum || 1) : each / (maximum || 1)));
  }
  return { ...grid, values };
}

/** Scales all values by the maximum magnitude; rounding errors stay near zero. */
export const scaleByMaximum = (grid: Grid): Grid => scaleByLimit(grid, Math.max(1e-4, maxMagnitude(grid)));

/** Scales all values so that `limit` becomes 1. */
export const scaleByLimit = (grid: Grid, limit: number): Grid => ({ ...grid, values: grid.values.map((value) => value / limit) });

/**
 * Max-pools a part of a grid to at most `width` × `height` values by magnitude: a mean would hide narrow peaks.
 */
export function maxPool(grid: Grid, rows: IndexRange, columns: IndexRange, width: number, height: number): Grid {
  const [down, across] = [Math.max(1, Math.min(rangeSize(rows), height)), Math.max(1, Math.min(rangeSize(columns), width))];
  const values = new Float32Array(down * across);
  for (let step = rows.from; step < rows.to; step++) {
    const y = Math.floor(((step - rows.from) * down) / rangeSize(rows));
    for (let index = columns.from; index < columns.to; index++) {
      const at = y * across + Math.floor(((index - columns.from) * across) / rangeSize(columns));
      const value = grid.values[step * grid.columns + index] ?? 0;
      if (Math.abs(value) > Math.abs(values[at] ?? 0)) values[at] = value;
    }
  }
  return { rows: down, columns: across, values };
}

/** Paints a grid on a canvas, each value as a sharp rectangle. */
export function paintGrid(canvas: HTMLCanvasElement, grid: Grid, color: (value: number) => readonly [number, number, number]): void {
  const context = canvas.getContext("2d");
  if (!context || grid.rows === 0 || grid.columns === 0) return;
  const small = document.createElement("canvas");
  [small.width, small.height] = [grid.columns, grid.rows];
  const pixels = new ImageData(grid.columns, grid.rows);
  // Read by pictureFiles.ts.
  Object.assign(canvas.dataset, { columns: grid.columns, rows: grid.rows });
  grid.values.forEach((value, index) => pixels.data.set([...color(value), 255], 4 * index));
  small.getContext("2d")?.putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}
