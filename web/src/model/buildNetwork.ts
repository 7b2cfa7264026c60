/** Network from the settings and parameters of a stored model. */
import { additiveAttention, dotAttention, locationAttention, monotonicAttention, multiHeadAttention, noAttention, type Attention } from "./attention";
import type { CellNormalization, RecurrentCell } from "./cells";
import type { Kernel } from "./kernel";
import { LayerNorm, Linear } from "./linear";
import type { ModelSettings, ParameterArrays, StoredModel } from "./modelFile";
import { Network, type Convolution, type EmbeddingTable, type StackedLayer } from "./network";

const NUM_SPECIAL = 4;

/** Parameters by their names in the run. */
class Parameters {
  constructor(
    private readonly kernel: Kernel,
    private readonly arrays: ParameterArrays,
  ) {}

  has(name: string): boolean {
    return this.arrays.has(name);
  }

  shape(name: string): readonly number[] {
    return this.arrays.get(name)?.shape ?? [];
  }

  /** Values of an array. Throws if the model lacks it. */
  values(name: string): Float32Array {
    const array = this.arrays.get(name);
    if (!array) throw new Error(`the model lacks the parameters “${name}”`);
    return array.values;
  }

  /** Linear map of a matrix, with or without a bias. */
  linear(matrix: string, bias: string | null): Linear {
    const [rows, columns] = this.shape(matrix);
    return new Linear(this.kernel, this.kernel.store(this.values(matrix), rows!, columns!), bias === null ? null : this.values(bias));
  }

  /** Linear map of a module; null if the model lacks it. */
  optionalLinear(module: string): Linear | null {
    return this.has(`${module}.weight`) ? this.linear(`${module}.weight`, this.has(`${module}.bias`) ? `${module}.bias` : null) : null;
  }

  /** Linear map of the windows of a convolution, whose weights are (filters, inputs, width): window positions come first. */
  convolution(module: string): Linear {
    const [filters, size, width] = this.shape(`${module}.weight`) as [number, number, number];
    const weights = this.values(`${module}.weight`);
    const values = weights.map((_, index) => {
      const [filter, offset, input] = [Math.floor(index / (width * size)), Math.floor(index / size) % width, index % size];
      return weights[(filter * size + input) * width + offset]!;
    });
    return new Linear(this.kernel, this.kernel.store(values, filters, width * size), this.values(`${module}.bias`));
  }

  layerNorm(module: string): LayerNorm | null {
    return this.has(`${module}.weight`) ? new LayerNorm(this.values(`${module}.weight`), this.values(`${module}.bias`)) : null;
  }
}

/** Builds a network; parameters are copied into the memory of the kernel. */
export function buildNetwork(kernel: Kernel, model: StoredModel, arrays: ParameterArrays): Network {
  const { settings } = model;
  const parameters = new Parameters(kernel, arrays);
  const numFeatures = model.feature_symbols.length > 0 ? NUM_SPECIAL + model.feature_symbols.length : 0;
  return new Network(kernel, {
    settings,
    sourceTable: embeddingTable(parameters, "encoder.table.weight", NUM_SPECIAL + model.source_symbols.length + numFeatures, true),
    convolutions: convolutions(parameters),
    encoderLayers: layers(parameters, "encoder", settings.encoder, ["forward_cells", "backward_cells"]),
    targetTable: embeddingTable(parameters, "decoder.table.weight", NUM_SPECIAL + model.target_symbols.length, settings.decoder.embedding === "one-hot"),
    decoderLayers: layers(parameters, "decoder", settings.decoder, ["cells"]),
    attention: buildAttention(kernel, parameters, settings.attention),
    context: parameters.optionalLinear("decoder.context_projection"),
    bridge: parameters.optionalLinear("decoder.bridge"),
    combination: parameters.optionalLinear("decoder.combination"),
    adapter: parameters.optionalLinear("decoder.head.adapter"),
    output: parameters.optionalLinear("decoder.head.projection") ?? parameters.linear("decoder.table.weight", "decoder.head.bias"),
    copyGate: parameters.optionalLinear("decoder.copying.gate"),
  });
}

/** Table of vectors. A table without parameters is one-hot, or has vectors of size 0. */
function embeddingTable(parameters: Parameters, name: string, numSymbols: number, isOneHot: boolean): EmbeddingTable {
  if (!parameters.has(name)) return { numSymbols, size: isOneHot ? numSymbols : 0, values: null };
  return { numSymbols, size: parameters.shape(name)[1]!, values: parameters.values(name) };
}

function layers(parameters: Parameters, part: "encoder" | "decoder", settings: { cell: "gru" | "lstm"; hidden_size: number; num_layers: number }, stacks: readonly string[]): StackedLayer[] {
  return Array.from({ length: settings.num_layers }, (_, layer) => ({
    cells: stacks.filter((stack) => parameters.has(`${part}.${stack}.layers.${layer}.hidden_weight`)).map((stack) => recurrentCell(parameters, `${part}.${stack}.layers.${layer}`, settings)),
    normalization: parameters.layerNorm(`${part}.normalizations.${layer}`),
  }));
}

function recurrentCell(parameters: Parameters, name: string, { cell: kind, hidden_size: size }: { cell: "gru" | "lstm"; hidden_size: number }): RecurrentCell {
  const normalization = cellNormalization(parameters, name);
  const bias = (each: string): string | null => (normalization ? null : `${name}.${each}`);
  return { kind, size, normalization, input: parameters.linear(`${name}.input_weight`, bias("input_bias")), hidden: parameters.linear(`${name}.hidden_weight`, bias("hidden_bias")) };
}

function cellNormalization(parameters: Parameters, name: string): CellNormalization | null {
  if (!parameters.has(`${name}.input_gain`)) return null;
  const [inputGain, inputBias, hiddenGain, hiddenBias] = ["input_gain", "input_bias", "hidden_gain", "hidden_bias"].map((each) => parameters.values(`${name}.${each}`));
  return { inputGain: inputGain!, inputBias: inputBias!, hiddenGain: hiddenGain!, hiddenBias: hiddenBias!, cellState: parameters.layerNorm(`${name}.leaving`) };
}

/** Convolutions of all widths. */
function convolutions(parameters: Parameters): Convolution[] {
  const found: Convolution[] = [];
  for (let index = 0; parameters.has(`encoder.convolutions.layers.${index}.weight`); index++) {
    const name = `encoder.convolutions.layers.${index}`;
    const width = parameters.shape(`${name}.weight`)[2]!;
    found.push({ width, map: parameters.convolution(name) });
  }
  return found;
}

/** Attention of the type that the settings name. Throws for other types. */
function buildAttention(kernel: Kernel, parameters: Parameters, settings: ModelSettings["attention"]): Attention {
  const module = "decoder.attention";
  const [query, key] = ["query_projection", "key_projection"].map((name) => parameters.optionalLinear(`${module}.${name}`));
  const energy = parameters.has(`${module}.energy`) ? parameters.values(`${module}.energy`) : new Float32Array();
  switch (settings.type) {
    case "additive": {
      const context = parameters.optionalLinear(`${module}.context_projection`);
      return context ? multiHeadAttention(kernel, { query: query!, key: key!, energy, context, numHeads: settings.num_heads }) : additiveAttention(kernel, query!, key!, energy);
    }
    case "location":
      return locationAttention(kernel, { query: query!, key: key!, energy, location: parameters.optionalLinear(`${module}.location_projection`)!, filters: parameters.values(`${module}.filters.weight`) });
    case "monotonic":
      return monotonicAttention(kernel, { query: query!, key: key!, energy, gain: parameters.values(`${module}.gain`)[0]!, offset: parameters.values(`${module}.offset`)[0]! });
    case "dot":
      return dotAttention(({ states }) => states);
    case "scaled-dot":
      return dotAttention(({ states, numPositions }) => states.map((value) => value / Math.sqrt(states.length / numPositions)));
    case "general":
      return dotAttention(({ states, numPositions }) => key!.apply(states, numPositions));
    case "none":
      return noAttention;
    default:
      throw new Error(`the page has no attention of the type “${settings.type}”`);
  }
}
