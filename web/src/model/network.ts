/** Encoder-decoder: encoder, initial state and decoder step. Equations: pellucid/model/encoder.py and decoder.py. */
import type { AttentionOutput, SourceAttention } from "./attention";
import { selectRows, stepCell, zeroState, type LayerState, type RecurrentCell } from "./cells";
import { add, joinRows, type LayerNorm, type Linear } from "./linear";
import type { DecoderState, Memory, StepOutput } from "./memory";
import type { ModelSettings } from "./modelFile";
import { mixCopies } from "./pointerGenerator";
import type { Attention } from "./attention";
import type { Kernel } from "./kernel";
import type { EncodedSource } from "./text";
import { UNK } from "./vocabulary";

/** Vectors of symbols; a one-hot table has no values. */
export interface EmbeddingTable {
  readonly numSymbols: number;
  readonly size: number;
  readonly values: Float32Array | null;
}

/** Layer of a stack: the cells of its directions, forward first, and the normalization of its outputs. */
export interface StackedLayer {
  readonly cells: readonly RecurrentCell[];
  readonly normalization: LayerNorm | null;
}

/** Convolution of one width between embeddings and first layer. */
export interface Convolution {
  readonly width: number;
  readonly map: Linear;
}

/** Parts of a network with their parameters; null: the network lacks the part. */
export interface NetworkParts {
  readonly settings: ModelSettings;
  readonly sourceTable: EmbeddingTable;
  readonly convolutions: readonly Convolution[];
  readonly encoderLayers: readonly StackedLayer[];
  readonly targetTable: EmbeddingTable;
  readonly decoderLayers: readonly StackedLayer[];
  readonly attention: Attention;
  /** Map of the context or the attentional state to the preactivations of the first cell. */
  readonly context: Linear | null;
  /** Map of the encoder state to the initial state. */
  readonly bridge: Linear | null;
  /** W_c of the attentional state, in step-then-attend. */
  readonly combination: Linear | null;
  /** Map of the inputs of a tied output layer to the size of the vectors. */
  readonly adapter: Linear | null;
  readonly output: Linear;
  /** Gate of the pointer-generator. */
  readonly copyGate: Linear | null;
}

/** Decoder steps after one source. */
export interface SourceDecoder {
  readonly memory: Memory;
  readonly initialState: DecoderState;
  /** Takes one step for each hypothesis. `forcedWeights` replace the attention weights of all. */
  step(symbols: readonly number[], state: DecoderState, forcedWeights: Float32Array | null): StepOutput;
}

export class Network {
  /** Projected target symbols, W x + b of the first cell, by their ids. */
  private readonly projections = new Map<number, Float32Array>();

  constructor(
    private readonly kernel: Kernel,
    private readonly parts: NetworkParts,
  ) {}

  /** Number of target ids. */
  get vocabularySize(): number {
    return this.parts.targetTable.numSymbols;
  }

  /** Encodes a source, and prepares the decoder. */
  startDecoder(source: EncodedSource, masked: ReadonlySet<number>): SourceDecoder {
    const memory = { ...this.encode(source), masked, copyIds: source.copyIds };
    const attention = this.parts.attention.prepare(memory);
    return {
      memory,
      initialState: this.initialState(memory),
      step: (symbols, state, forcedWeights) => this.step(symbols, state, memory, attention, forcedWeights),
    };
  }

  private encode({ ids, featureIds }: EncodedSource): Pick<Memory, "numPositions" | "states" | "final"> {
    const { settings, sourceTable, convolutions, encoderLayers } = this.parts;
    const numPositions = ids.length;
    let states = lookUp(sourceTable, ids);
    for (const feature of featureIds) states = addVector(states, lookUp(sourceTable, [feature]));
    if (convolutions.length > 0) states = joinRows(convolutions.map((each) => convolve(each, states, numPositions)), numPositions);
    let final: Float32Array = new Float32Array();
    encoderLayers.forEach(({ cells, normalization }, layer) => {
      const directions = cells.map((cell, direction) => this.runCell(cell, states, numPositions, direction === 1));
      const merged = this.merge(directions.map((each) => each.states), numPositions);
      const outputs = normalization ? normalization.apply(merged) : merged;
      final = this.merge(directions.map((each) => each.final), 1);
      states = settings.encoder.residual && layer > 0 ? add(states, outputs) : outputs;
    });
    return { numPositions, states, final };
  }

  /** Hidden states of a cell at all positions, and the last one of its direction. */
  private runCell(cell: RecurrentCell, inputs: Float32Array, numPositions: number, backward: boolean): { states: Float32Array; final: Float32Array } {
    const projected = cell.input.apply(inputs, numPositions);
    const width = projected.length / numPositions;
    const states = new Float32Array(numPositions * cell.size);
    let state = zeroState(cell, 1);
    for (let step = 0; step < numPositions; step++) {
      const position = backward ? numPositions - 1 - step : step;
      state = stepCell(this.kernel, cell, projected.subarray(position * width, (position + 1) * width), state, 1);
      states.set(state.hidden, position * cell.size);
    }
    return { states, final: state.hidden };
  }

  private merge(directions: readonly Float32Array[], numRows: number): Float32Array {
    const [forward, backward] = directions;
    if (!backward) return forward!;
    const { merge } = this.parts.settings.encoder;
    if (merge === "concatenate") return joinRows(directions, numRows);
    return forward!.map((value, index) => (merge === "sum" ? value + backward[index]! : value * backward[index]!));
  }

  /** h = tanh(W m + b) and c = W' m + b' of each layer, with the final or the mean encoder state m; or zeros. */
  private initialState(memory: Memory): DecoderState {
    const { settings, bridge, decoderLayers, attention, context } = this.parts;
    const { init_hidden: kind, hidden_size: size, order, num_layers: numLayers } = settings.decoder;
    const values = bridge?.apply(kind === "mean" ? meanState(memory) : memory.final, 1);
    const layers = decoderLayers.map(({ cells: [cell] }, layer): LayerState => {
      if (!values) return zeroState(cell!, 1);
      const hidden = values.slice(layer * size, (layer + 1) * size);
      this.kernel.tanh(hidden);
      return { hidden, cell: cell!.kind === "lstm" ? values.slice((numLayers + layer) * size, (numLayers + layer + 1) * size) : new Float32Array() };
    });
    const hasFeed = order === "step-then-attend" && context !== null;
    return { layers, inputFeed: hasFeed ? new Float32Array(size) : null, attention: attention.initialWeights(memory.numPositions) };
  }

  private step(symbols: readonly number[], state: DecoderState, memory: Memory, attention: SourceAttention, forcedWeights: Float32Array | null): StepOutput {
    const numRows = symbols.length;
    // Copied symbols outside the vocabulary have no vectors.
    const known = symbols.map((symbol) => (symbol < this.vocabularySize ? symbol : UNK));
    const attend = (queries: Float32Array): AttentionOutput => (forcedWeights ? attention.force(forcedWeights, numRows) : attention.attend(queries, numRows, state.attention));
    const result = this.parts.settings.decoder.order === "attend-then-step" ? this.attendThenStep(known, state, attend) : this.stepThenAttend(known, state, attend);
    const { attended, layers, output, inputFeed } = result;
    const logits = this.outputLogits(known, output, attended, memory);
    return { logits, weights: attended.weights, state: { layers, inputFeed, attention: state.attention && attended.weights } };
  }

  /** c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}) */
  private attendThenStep(symbols: readonly number[], state: DecoderState, attend: (queries: Float32Array) => AttentionOutput): StepParts {
    const attended = attend(state.layers.at(-1)!.hidden);
    const inputs = add(this.projectSymbols(symbols), this.parts.context!.apply(attended.contexts, symbols.length));
    return { attended, ...this.stepLayers(inputs, state.layers, symbols.length), inputFeed: null };
  }

  /** s_t = cell([y_{t−1}; a_{t−1}], s_{t−1}), c_t = attention(s_t), a_t = tanh(W_c [s_t; c_t]) */
  private stepThenAttend(symbols: readonly number[], state: DecoderState, attend: (queries: Float32Array) => AttentionOutput): StepParts {
    const { context, combination } = this.parts;
    const projected = this.projectSymbols(symbols);
    const inputs = context && state.inputFeed ? add(projected, context.apply(state.inputFeed, symbols.length)) : projected;
    const { layers, output: top } = this.stepLayers(inputs, state.layers, symbols.length);
    const attended = attend(top);
    const output = combination!.apply(this.readoutInputs(top, attended.contexts, symbols.length), symbols.length);
    this.kernel.tanh(output);
    return { attended, layers, output, inputFeed: state.inputFeed && output };
  }

  /** Steps every layer; each reads the output of the one below. */
  private stepLayers(inputs: Float32Array, states: readonly LayerState[], numRows: number): Pick<StepParts, "layers" | "output"> {
    let output: Float32Array = new Float32Array();
    const layers = this.parts.decoderLayers.map(({ cells: [cell], normalization }, layer) => {
      const projected = layer === 0 ? inputs : cell!.input.apply(output, numRows);
      const state = stepCell(this.kernel, cell!, projected, states[layer]!, numRows);
      const layerOutput = normalization ? normalization.apply(state.hidden) : state.hidden;
      output = this.parts.settings.decoder.residual && layer > 0 ? add(output, layerOutput) : layerOutput;
      return state;
    });
    return { layers, output };
  }

  private projectSymbols(symbols: readonly number[]): Float32Array {
    const rows = symbols.map((symbol) => {
      const projection = this.projections.get(symbol) ?? this.parts.decoderLayers[0]!.cells[0]!.input.apply(lookUp(this.parts.targetTable, [symbol]), 1);
      this.projections.set(symbol, projection);
      return projection;
    });
    const projected = new Float32Array(rows.length * rows[0]!.length);
    rows.forEach((row, index) => projected.set(row, index * row.length));
    return projected;
  }

  private readoutInputs(state: Float32Array, contexts: Float32Array, numRows: number): Float32Array {
    const { output_layer_inputs: inputs } = this.parts.settings.decoder;
    return inputs === "state" ? state : inputs === "context" ? contexts : joinRows([state, contexts], numRows);
  }

  private outputLogits(symbols: readonly number[], output: Float32Array, { contexts, weights }: AttentionOutput, memory: Memory): Float32Array {
    const { settings, adapter, output: layer, copyGate, targetTable } = this.parts;
    const numRows = symbols.length;
    // In step-then-attend, the attentional state has read the context.
    const inputs = settings.decoder.order === "step-then-attend" ? output : this.readoutInputs(output, contexts, numRows);
    const logits = layer.apply(adapter ? adapter.apply(inputs, numRows) : inputs, numRows);
    if (!copyGate) return logits;
    const gates = copyGate.apply(joinRows([output, contexts, lookUp(targetTable, symbols)], numRows), numRows);
    return mixCopies(logits, weights, gates, memory.copyIds);
  }
}

interface StepParts {
  readonly attended: AttentionOutput;
  readonly layers: readonly LayerState[];
  readonly output: Float32Array;
  readonly inputFeed: Float32Array | null;
}

/** Vectors of symbols, one row each. */
function lookUp({ size, values }: EmbeddingTable, ids: readonly number[]): Float32Array {
  if (values) return selectRows(values, size, ids);
  const vectors = new Float32Array(ids.length * size);
  if (size > 0) ids.forEach((id, row) => (vectors[row * size + id] = 1));
  return vectors;
}

const addVector = (rows: Float32Array, vector: Float32Array): Float32Array => rows.map((value, index) => value + vector[index % vector.length]!);

function meanState({ states, numPositions }: Memory): Float32Array {
  const size = states.length / numPositions;
  const mean = new Float32Array(size);
  states.forEach((value, index) => (mean[index % size]! += value));
  return mean.map((value) => value / numPositions);
}

/** y_s = ReLU(b + Σ_j W_j x_{s+j}), j over the positions around s; inputs beyond the source are zero. */
function convolve({ width, map }: Convolution, inputs: Float32Array, numPositions: number): Float32Array {
  const size = inputs.length / numPositions;
  const windows = new Float32Array(numPositions * width * size);
  for (let position = 0; position < numPositions; position++) {
    for (let offset = 0; offset < width; offset++) {
      const from = position + offset - Math.floor((width - 1) / 2);
      if (from >= 0 && from < numPositions) windows.set(inputs.subarray(from * size, (from + 1) * size), (position * width + offset) * size);
    }
  }
  return map.apply(windows, numPositions).map((value) => Math.max(0, value));
}
