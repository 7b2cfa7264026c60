/** Values that pass between encoder, attention and decoder. */
import { selectRows, type LayerState } from "./cells";

/** Encoder output for one source of S positions. */
export interface Memory {
  readonly numPositions: number;
  /** State of the top layer at each position, S × D. */
  readonly states: Float32Array;
  /** Final state of the top layer, both directions merged. */
  readonly final: Float32Array;
  /** Positions that attention must ignore. */
  readonly masked: ReadonlySet<number>;
  /** Target id of the symbol at each position when it is copied; −1 if it is never copied. */
  readonly copyIds: readonly number[];
}

/** State of the decoder for R hypotheses of one source, one row each. */
export interface DecoderState {
  readonly layers: readonly LayerState[];
  /** Attentional state of the previous step, with input feeding. */
  readonly inputFeed: Float32Array | null;
  /** Attention weights of the previous step, if the attention reads them. */
  readonly attention: Float32Array | null;
}

/** Result of a decoder step for R hypotheses. */
export interface StepOutput {
  /** Logits of the next symbols, R × V; with a pointer-generator log-probabilities, R × (V + S). */
  readonly logits: Float32Array;
  /** Attention weights, R × S. */
  readonly weights: Float32Array;
  readonly state: DecoderState;
}

/** State of selected hypotheses. */
export function selectHypotheses(state: DecoderState, numRows: number, rows: readonly number[]): DecoderState {
  const select = (values: Float32Array): Float32Array => selectRows(values, values.length / numRows, rows);
  return {
    layers: state.layers.map(({ hidden, cell }) => ({ hidden: select(hidden), cell: select(cell) })),
    inputFeed: state.inputFeed && select(state.inputFeed),
    attention: state.attention && select(state.attention),
  };
}
