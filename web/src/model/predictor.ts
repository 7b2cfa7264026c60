/** Answers requests to decode with a model in the page, in the schema of the server (data/contents.ts). */
import { encodeGrid, gridFromRows } from "../data/arrays";
import type { DecodeRequest, EncodedArray, SearchTree, PageExample, Trace } from "../data/contents";
import { END } from "../data/steps";
import { quoteSymbol } from "../drawing/symbols";
import { buildNetwork } from "./buildNetwork";
import type { Kernel } from "./kernel";
import { readParameters, type StoredModel } from "./modelFile";
import type { Network, SourceDecoder } from "./network";
import { mergeCopies } from "./pointerGenerator";
import { isLogProbability } from "./scorer";
import { beamSearch, forceTarget, type OutputSymbol, type SearchOptions, type SearchResult } from "./search";
import { encodeSource, joinSymbols, type EncodedSource, type ModelVocabularies } from "./text";
import { EOS, UNK, Vocabulary } from "./vocabulary";

/** Version of traces (pellucid/decoding/trace_schema.py). */
const TRACE_VERSION = 4;

/** Source with the decoder that attends to it. */
export interface StartedSource {
  readonly source: EncodedSource;
  readonly decoder: SourceDecoder;
  readonly forcedAttention: SearchOptions["forcedAttention"];
}

/** Model with its vocabularies. Errors are sentences for the user. */
export class ModelPredictor {
  private readonly vocabularies: ModelVocabularies;

  constructor(
    readonly model: StoredModel,
    private readonly network: Network,
  ) {
    const [source, features, target] = [model.source_symbols, model.feature_symbols, model.target_symbols].map((symbols) => new Vocabulary(symbols));
    this.vocabularies = { source: source!, features: features!, target: target! };
  }

  /** Decodes a source with the constraints of a request. */
  decode(request: DecodeRequest): PageExample {
    const started = this.start(request);
    const outputs = started ? this.outputs(request, started) : [this.emptyTrace(request)];
    const traces = request.num_outputs > 1 && request.prefix.at(-1) !== END ? withProbabilities(outputs) : outputs;
    return { text: request.text, features: request.features, traces, references: [], edits: [], errors: null, exact: null, line: null, row_id: "", gold_alignment: null };
  }

  /** Encodes the source of a request; null for an empty source. */
  start(request: DecodeRequest): StartedSource | null {
    const { settings } = this.model;
    const source = encodeSource(settings, this.vocabularies, request.text, request.features);
    if (source.symbols.length === source.numFeatures) return null;
    if (source.symbols.length - source.numFeatures > settings.data.max_sequence_length) throw new Error(`The source has ${source.symbols.length} symbols; the model reads at most ${settings.data.max_sequence_length}.`);
    if (request.masked_positions.length >= source.symbols.length) throw new Error("All positions are masked: unmask at least one.");
    const masked = new Set(request.masked_positions);
    const forcedAttention = new Map(request.forced_attention.map(({ step, weights }) => [step, normalizedWeights(weights, masked)]));
    return { source, decoder: this.network.startDecoder(source, masked), forcedAttention };
  }

  private outputs(request: DecodeRequest, started: StartedSource): Trace[] {
    if (request.prefix.at(-1) === END) return [this.score(started, request.prefix.slice(0, -1))].map((trace) => ({ ...trace, forced: trace.target.map((_, step) => step) }));
    const prefix = this.targetIds(request.prefix, started.source);
    const result = beamSearch(started.decoder, this.searchOptions(request, started, prefix));
    const traces = result.hypotheses.map(({ symbols, score }, index) => ({
      ...this.trace(started, symbols),
      rank: index + 1,
      search_score: isLogProbability(this.model.settings.search) ? null : score,
      forced: prefix.slice(0, symbols.length).map((_, step) => step),
    }));
    const [first, ...others] = traces;
    return [{ ...first!, search_tree: request.search_tree ? this.searchTree(result, started.source) : null }, ...others];
  }

  /** Scores a given output, as if it had been decoded. */
  score(started: StartedSource, target: readonly string[]): Trace {
    const ids = target.map((symbol) => this.targetId(symbol, started.source) ?? UNK);
    const trace = this.trace(started, forceTarget(started.decoder, [...ids, EOS], started.forcedAttention));
    return { ...trace, origin: "given", search_score: isLogProbability(this.model.settings.search) ? null : trace.score, target: [...target, END], output: joinSymbols(this.model.settings.data.target_symbols, target), unknown_target: ids.flatMap((id, step) => (id === UNK ? [step] : [])) };
  }

  /** Distribution of each step of an output. Copies of symbols outside the vocabulary are one more column. */
  distributions(started: StartedSource, target: readonly string[]): Float32Array[] {
    const ids = target.map((symbol) => (symbol === END ? EOS : (this.targetId(symbol, started.source) ?? UNK)));
    return forceTarget(started.decoder, ids, started.forcedAttention).map(({ distribution }) => mergeCopies(distribution.logProbabilities, this.vocabularies.target.size));
  }

  private searchOptions(request: DecodeRequest, { source, forcedAttention }: StartedSource, prefix: readonly number[]): SearchOptions {
    const { search } = this.model.settings;
    if (prefix.length > search.max_length) throw new Error(`The prefix has ${prefix.length} symbols; outputs have at most ${search.max_length}.`);
    const [minLength, maxLength] = lengthLimits(search, source.symbols.length - source.numFeatures);
    const longest = Math.max(maxLength, prefix.length);
    return { beamSize: Math.max(request.beam_size, request.num_outputs), numOutputs: request.num_outputs, prefix, minLength: Math.min(minLength, longest), maxLength: longest, forcedAttention, searchTree: request.search_tree, score: search };
  }

  /** Ids of a prefix. Throws for a symbol that the model never writes. */
  private targetIds(symbols: readonly string[], source: EncodedSource): number[] {
    return symbols.map((symbol) => {
      const id = this.targetId(symbol, source);
      if (id === undefined) throw new Error(`The model never writes the symbol ${quoteSymbol(symbol)}, which is not in its training targets.`);
      return id;
    });
  }

  /** Id of a symbol of an output; undefined if the model cannot write it. */
  private targetId(symbol: string, { copyIds, symbols, numFeatures }: EncodedSource): number | undefined {
    const copied = this.model.settings.decoder.pointer_generator ? symbols.indexOf(symbol, numFeatures) : -1;
    return this.vocabularies.target.id(symbol) ?? copyIds[copied];
  }

  private symbolName(id: number, { symbols }: EncodedSource): string {
    const { target } = this.vocabularies;
    return target.name(id) ?? symbols[id - target.size] ?? "";
  }

  /** Trace of an output. */
  private trace({ source, forcedAttention }: StartedSource, symbols: readonly OutputSymbol[]): Trace {
    const target = symbols.map(({ id }) => this.symbolName(id, source));
    const isFinished = symbols.at(-1)?.id === EOS;
    const logProbabilities = symbols.map(({ logProbability }) => logProbability);
    return {
      ...emptyTrace(source, this.model.task),
      output: joinSymbols(this.model.settings.data.target_symbols, isFinished ? target.slice(0, -1) : target),
      score: logProbabilities.reduce((sum, each) => sum + each, 0),
      finished: isFinished,
      target,
      log_probabilities: logProbabilities,
      attention: encodeGrid(gridFromRows(symbols.map(({ distribution }) => distribution.weights))),
      top: symbols.map(({ distribution }) => distribution.top.map(([id, value]) => [this.symbolName(id, source), value])),
      entropy: encodeVector(symbols.map(({ distribution }) => entropy(mergeCopies(distribution.logProbabilities, this.vocabularies.target.size)))),
      forced_attention: [...forcedAttention.keys()].filter((step) => step < symbols.length).sort((a, b) => a - b),
    };
  }

  private emptyTrace(request: DecodeRequest): Trace {
    return emptyTrace(encodeSource(this.model.settings, this.vocabularies, request.text, []), this.model.task);
  }

  private searchTree({ tree, hypotheses }: SearchResult, source: EncodedSource): SearchTree {
    const distributions = [...new Set(tree.map(({ distribution }) => distribution))];
    return {
      symbols: tree.map(({ id }) => this.symbolName(id, source)),
      parents: tree.map(({ parent }) => parent),
      log_probabilities: tree.map(({ logProbability }) => logProbability),
      scores: tree.map(({ cumulative }) => cumulative),
      statuses: tree.map(({ status }) => status),
      attention_rows: tree.map(({ distribution }) => distributions.indexOf(distribution)),
      attention: encodeGrid(gridFromRows(distributions.map(({ weights }) => weights))),
      leaf: hypotheses[0]?.leaf ?? -1,
    };
  }
}

/** Decompresses the parameters of a model and builds it. */
export async function loadPredictor(kernel: Kernel, model: StoredModel): Promise<ModelPredictor> {
  return new ModelPredictor(model, buildNetwork(kernel, model, await readParameters(model)));
}

/** Trace without steps: the output of an empty source. */
function emptyTrace(source: EncodedSource, task: string): Trace {
  const none = encodeVector([]);
  return {
    version: TRACE_VERSION, text: source.text, output: "", score: 0, finished: true, source: [...source.symbols], num_features: source.numFeatures, unknown: [...source.unknown],
    target: [], log_probabilities: [], attention: encodeGrid(gridFromRows([])), top: [], rank: 1, origin: "search", nbest_probability: null, search_score: null, pair_ngram_score: null,
    confidence: null, task, heads: null, hop_weights: null, summed_features: [...source.summedFeatures], unknown_target: [], forced: [], forced_attention: [], search_tree: null,
    entropy: none, entropy_is_lower_bound: false, alignment: [], attribution: null, states: null,
  };
}

/** Vector as an array of the schema. */
export function encodeVector(values: readonly number[]): EncodedArray {
  return { ...encodeGrid(gridFromRows([values])), shape: [values.length] };
}

/** Entropy in bits. */
function entropy(logProbabilities: Float32Array): number {
  const sum = logProbabilities.reduce((total, value) => (value > -Infinity ? total - Math.exp(value) * value : total), 0);
  return Math.max(0, sum / Math.LN2);
}

/** Traces with the probability of each output, normalized over these outputs. */
function withProbabilities(traces: Trace[]): Trace[] {
  const scores = traces.map(({ search_score: ranked, score }) => ranked ?? score);
  const weights = scores.map((score) => Math.exp(score - Math.max(...scores)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return traces.map((trace, index) => ({ ...trace, nbest_probability: weights[index]! / total }));
}

/** Weights without masked positions, which sum to one. Throws if all are zero. */
function normalizedWeights(weights: readonly number[], masked: ReadonlySet<number>): Float32Array {
  const used = weights.map((weight, position) => (masked.has(position) ? 0 : weight));
  const total = used.reduce((sum, weight) => sum + weight, 0);
  if (!(total > 0)) throw new Error("The attention weights of a step are all zero: set at least one, at a position that is not masked.");
  return Float32Array.from(used, (weight) => weight / total);
}

/** Minimum and maximum number of output symbols for a source. */
function lengthLimits(search: StoredModel["settings"]["search"], numSymbols: number): [number, number] {
  const product = (ratio: number): number => Number((ratio * numSymbols).toFixed(9));
  const minimum = search.min_length_ratio ? Math.max(search.min_length, Math.ceil(product(search.min_length_ratio)) + search.min_length_offset) : search.min_length;
  const maximum = search.max_length_ratio ? Math.min(search.max_length, Math.max(1, Math.floor(product(search.max_length_ratio)) + search.max_length_offset)) : search.max_length;
  return [minimum, maximum];
}
