/** Description of the selected cell, for sight and screen readers. */
import { row, type Grid } from "../data/arrays";
import { topValues } from "../drawing/layout";
import { formatDecimal, formatPrecise, formatPercent } from "../drawing/scales";
import { spokenSymbol, unknownSuffix } from "../drawing/symbols";

export interface ReadoutData {
  readonly weights: Grid;
  readonly source: readonly string[];
  readonly target: readonly string[];
  /** Name of the values, such as "weight". */
  readonly quantity: string;
  /** Whether values are shown in percent. */
  readonly isPercent: boolean;
  /** Positions of unknown symbols. */
  readonly unknown?: ReadonlySet<number>;
  /** Description of a step that writes no symbol. */
  readonly describeStep?: (step: number) => string;
}

function formatWeight(value: number, isPercent: boolean): string {
  return isPercent ? formatPercent(value) : formatDecimal(value);
}

function listWeights(values: ArrayLike<number>, names: readonly string[], isPercent: boolean): string {
  const maxima = topValues(values, 4).filter(({ value }, at) => at === 0 || !isPercent || value >= 0.005);
  return maxima.map(({ index, value }) => `${spokenSymbol(names[index] ?? "")} (${index + 1}) ${formatWeight(value, isPercent)}`).join(", ");
}

/** Computation of an attention weight: softmax, rank, and score relative to the maximum. */
export function describeOrigin({ weights, source }: ReadoutData, step: number, position: number): string {
  const all = row(weights, step);
  const [weight, maximum] = [all[position] ?? 0, topValues(all, 1)[0]];
  if (!maximum || weight <= 0) return "";
  const rank = 1 + all.filter((each) => each > weight).length;
  const bits = all.reduce((sum, each) => (each > 0 ? sum - each * Math.log2(each) : sum), 0);
  const difference = formatDecimal(Math.log(weight / maximum.value), 2);
  const digits = (value: number): string => (Number(value.toPrecision(3)) === 1 ? formatPrecise(value, 3) : value.toPrecision(3));
  const comparison = rank > 1 ? `; relative to the maximum, ${spokenSymbol(source[maximum.index] ?? "")} (${maximum.index + 1}), that is ln ${digits(weight)} − ln ${digits(maximum.value)} = ${difference}` : "";
  return `Softmax: α = exp e / Σ exp e over the row = ${digits(weight)}, rank ${rank} of ${all.length}; entropy of the row: ${bits.toFixed(2)} bits. The scores e are not stored; their differences are e − e′ = ln α − ln α′${comparison}. The state h at this position contributes ${formatPercent(weight)} to the context Σ α h.`;
}

/** Description of a cell, step or position, counted from 1; "" if nothing is selected. */
export function describeCell(data: ReadoutData, step: number | null, position: number | null): string {
  const { weights, source, target, isPercent } = data;
  const hasStep = step !== null && step < weights.rows;
  const stepText = hasStep && data.describeStep ? data.describeStep(step) : hasStep ? `Step ${step + 1}, ${spokenSymbol(target[step] ?? "")}` : "";
  const positionText = position !== null && position < weights.columns ? `position ${position + 1}, ${spokenSymbol(source[position] ?? "")}${unknownSuffix(data.unknown, position)}` : "";
  if (hasStep && positionText) {
    const value = weights.values[step * weights.columns + (position ?? 0)] ?? 0;
    return `${stepText}; ${data.quantity} on ${positionText}: ${formatDecimal(value, 4)}.`;
  }
  if (hasStep) {
    const maximum = listWeights(row(weights, step), source, isPercent);
    return maximum ? `${stepText}; ${data.quantity} on ${maximum}.` : `${stepText}; ${isPercent ? "no attention" : "nothing"}.`;
  }
  if (!positionText || position === null) return "";
  const column = Array.from({ length: weights.rows }, (_, each) => weights.values[each * weights.columns + position] ?? 0);
  const maximum = listWeights(column, target, isPercent);
  return `P${positionText.slice(1)}: ${maximum ? `${isPercent ? "maximum weight" : `greatest ${data.quantity}`} at ${maximum}` : "no attention at any step"}.`;
}
