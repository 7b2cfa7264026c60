/** Recurrent cells: GRU and LSTM, plain or with normalized preactivations. Equations: pellucid/model/cells.py. */
import type { Kernel } from "./kernel";
import { add, normalizeGroups, type LayerNorm, type Linear } from "./linear";

/** State of one layer for several hypotheses, one row each; `cell` is empty for cells without a cell state. */
export interface LayerState {
  readonly hidden: Float32Array;
  readonly cell: Float32Array;
}

const NO_VALUES = new Float32Array();

/** Gains and biases of a cell with normalized preactivations. */
export interface CellNormalization {
  readonly inputGain: Float32Array;
  readonly inputBias: Float32Array;
  readonly hiddenGain: Float32Array;
  readonly hiddenBias: Float32Array;
  /** Normalization of the cell state of an LSTM. */
  readonly cellState: LayerNorm | null;
}

export interface RecurrentCell {
  readonly kind: "gru" | "lstm";
  readonly size: number;
  /** W x + b; without b if the preactivations are normalized. */
  readonly input: Linear;
  /** U h + c; without c if the preactivations are normalized. */
  readonly hidden: Linear;
  readonly normalization: CellNormalization | null;
}

/** State of zeros. */
export function zeroState({ kind, size }: RecurrentCell, numRows: number): LayerState {
  return { hidden: new Float32Array(numRows * size), cell: new Float32Array(kind === "lstm" ? numRows * size : 0) };
}

/** State after a step; `projected` is W x + b of each row. */
export function stepCell(kernel: Kernel, cell: RecurrentCell, projected: Float32Array, state: LayerState, numRows: number): LayerState {
  let [inputs, recurrent] = [projected, cell.hidden.apply(state.hidden, numRows)];
  if (cell.normalization) {
    const groups = cell.kind === "gru" ? [2 * cell.size, cell.size] : [4 * cell.size];
    const { inputGain, inputBias, hiddenGain, hiddenBias } = cell.normalization;
    inputs = normalizeGroups(inputs, groups, inputGain, inputBias);
    recurrent = normalizeGroups(recurrent, groups, hiddenGain, hiddenBias);
  }
  return cell.kind === "gru" ? stepGru(kernel, cell.size, inputs, recurrent, state) : stepLstm(kernel, cell, inputs, recurrent, state);
}

/** r, z = σ(a + u), n = tanh(a_n + r u_n), h' = n + z (h − n). */
function stepGru(kernel: Kernel, size: number, inputs: Float32Array, recurrent: Float32Array, { hidden }: LayerState): LayerState {
  const numRows = hidden.length / size;
  const gates = new Float32Array(numRows * 2 * size);
  const next = new Float32Array(hidden.length);
  for (let row = 0; row < numRows; row++) {
    const [from, to] = [row * 3 * size, row * 2 * size];
    for (let unit = 0; unit < 2 * size; unit++) gates[to + unit] = inputs[from + unit]! + recurrent[from + unit]!;
  }
  kernel.sigmoid(gates);
  for (let row = 0; row < numRows; row++) {
    const [from, reset, to] = [(row * 3 + 2) * size, row * 2 * size, row * size];
    for (let unit = 0; unit < size; unit++) next[to + unit] = inputs[from + unit]! + gates[reset + unit]! * recurrent[from + unit]!;
  }
  kernel.tanh(next);
  for (let row = 0; row < numRows; row++) {
    const [update, to] = [(row * 2 + 1) * size, row * size];
    for (let unit = 0; unit < size; unit++) next[to + unit]! += gates[update + unit]! * (hidden[to + unit]! - next[to + unit]!);
  }
  return { hidden: next, cell: NO_VALUES };
}

/** i, f, o = σ(a + u), g = tanh(a_g + u_g), c' = f c + i g, h' = o tanh(c'); with normalization h' = o tanh(LN(c')). */
function stepLstm(kernel: Kernel, { size, normalization }: RecurrentCell, inputs: Float32Array, recurrent: Float32Array, state: LayerState): LayerState {
  const numRows = state.hidden.length / size;
  const gates = add(inputs, recurrent);
  const cell = new Float32Array(numRows * size);
  for (let row = 0; row < numRows; row++) cell.set(gates.subarray((row * 4 + 2) * size, (row * 4 + 3) * size), row * size);
  kernel.sigmoid(gates);
  kernel.tanh(cell);
  for (let row = 0; row < numRows; row++) {
    const [input, forget, at] = [row * 4 * size, (row * 4 + 1) * size, row * size];
    for (let unit = 0; unit < size; unit++) cell[at + unit] = gates[forget + unit]! * state.cell[at + unit]! + gates[input + unit]! * cell[at + unit]!;
  }
  const hidden = normalization?.cellState?.apply(cell) ?? cell.slice();
  kernel.tanh(hidden);
  for (let row = 0; row < numRows; row++) {
    for (let unit = 0; unit < size; unit++) hidden[row * size + unit]! *= gates[(row * 4 + 3) * size + unit]!;
  }
  return { hidden, cell };
}

/** States of selected rows. */
export function selectRows(values: Float32Array, size: number, rows: readonly number[]): Float32Array {
  const selected = new Float32Array(rows.length * size);
  rows.forEach((row, index) => selected.set(values.subarray(row * size, (row + 1) * size), index * size));
  return selected;
}
