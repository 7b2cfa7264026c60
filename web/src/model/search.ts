/**
 * Beam search over one source, and forced decoding of a given target. As pellucid/decoding/beam_search.py: hypotheses are pruned by
 * log-probability, finished outputs are ranked by their scores, and the search ends when no better output can follow.
 */
import { selectHypotheses, type DecoderState, type StepOutput } from "./memory";
import type { SourceDecoder } from "./network";
import { logSoftmax } from "./linear";
import { isLogProbability, lengthPenalty, scoreOutput, type ScoreSettings } from "./scorer";
import { BOS, EOS, PAD, UNK } from "./vocabulary";

/** Number of candidates kept per step. */
const NUM_CANDIDATES = 5;

export interface SearchOptions {
  readonly beamSize: number;
  /** Maximum number of outputs, at most `beamSize`. */
  readonly numOutputs: number;
  /** Ids of the first symbols. */
  readonly prefix: readonly number[];
  /** Minimum and maximum number of symbols, without EOS. */
  readonly minLength: number;
  readonly maxLength: number;
  /** Attention weights of some steps. */
  readonly forcedAttention: ReadonlyMap<number, Float32Array>;
  /** Whether to record the extensions that were pruned. */
  readonly searchTree: boolean;
  readonly score: ScoreSettings;
}

/** Distribution of one hypothesis at one step. */
export interface StepDistribution {
  /** Log-probability of every symbol; −∞ for symbols that are never predicted. */
  readonly logProbabilities: Float32Array;
  /** Most probable symbols. */
  readonly top: readonly (readonly [id: number, logProbability: number])[];
  readonly weights: Float32Array;
}

/** One symbol of an output. */
export interface OutputSymbol {
  readonly id: number;
  readonly logProbability: number;
  readonly distribution: StepDistribution;
}

export interface Hypothesis {
  readonly symbols: readonly OutputSymbol[];
  readonly score: number;
  /** Node of its last symbol in the search tree, or −1. */
  readonly leaf: number;
}

/** Node of the search tree. */
export interface TreeNode {
  readonly id: number;
  readonly parent: number;
  readonly logProbability: number;
  readonly cumulative: number;
  readonly status: "ended" | "kept" | "pruned";
  readonly distribution: StepDistribution;
}

export interface SearchResult {
  readonly hypotheses: readonly Hypothesis[];
  readonly tree: readonly TreeNode[];
}

/** Hypothesis with one more symbol. */
interface Extension {
  /** Hypothesis of the step that it continues. */
  readonly parent: number;
  /** Index of that hypothesis among the extensions of the previous step; −1 at the first step. */
  readonly origin: number;
  readonly id: number;
  readonly logProbability: number;
  readonly cumulative: number;
  ended: boolean;
  kept: boolean;
}

interface BeamStep {
  readonly distributions: readonly StepDistribution[];
  readonly extensions: readonly Extension[];
}

interface BeamHypothesis {
  readonly symbol: number;
  readonly cumulative: number;
  readonly origin: number;
  /** Sum of the attention weights of each position. */
  readonly coverage: Float32Array;
}

/** Last symbol of an output: an extension of a step. */
interface HypothesisEnd {
  readonly truncated: boolean;
  readonly score: number;
  readonly step: number;
  readonly extension: number;
}

/** Runs beam search. */
export function beamSearch(decoder: SourceDecoder, options: SearchOptions): SearchResult {
  const steps: BeamStep[] = [];
  const ends: HypothesisEnd[] = [];
  let freeSlots = options.beamSize;
  let state = decoder.initialState;
  let beam: BeamHypothesis[] = [{ symbol: BOS, cumulative: 0, origin: -1, coverage: new Float32Array(decoder.memory.numPositions) }];
  for (let isActive = true; isActive; ) {
    const output = decoder.step(beam.map(({ symbol }) => symbol), state, options.forcedAttention.get(steps.length) ?? null);
    const step = extendBeam(beam, output, options, steps.length, freeSlots);
    steps.push(step);
    beam = beam.map((hypothesis, row) => ({ ...hypothesis, coverage: addCoverage(hypothesis.coverage, step.distributions[row]!.weights) }));
    isActive = recordEnds(beam, steps, ends, options);
    freeSlots -= step.extensions.filter(({ ended }) => ended).length;
    if (isActive) [beam, state] = nextBeam(beam, step, output.state);
  }
  const best = ends.sort(compareEnds).slice(0, options.numOutputs);
  const { nodes, nodeOf } = searchTree(options.searchTree ? steps : []);
  return { hypotheses: best.map((end) => ({ symbols: backtrace(steps, end), score: end.score, leaf: nodeOf(end.step, end.extension) })), tree: nodes };
}

function addCoverage(coverage: Float32Array, weights: Float32Array): Float32Array {
  return coverage.map((sum, position) => sum + weights[position]!);
}

/** Finished outputs before truncated ones, then by score; of equal ones the earlier. */
function compareEnds(a: HypothesisEnd, b: HypothesisEnd): number {
  return Number(a.truncated) - Number(b.truncated) || b.score - a.score || a.step - b.step || a.extension - b.extension;
}

/** Selects the best extensions of all hypotheses, and marks those that end or stay in the beam. */
function extendBeam(beam: readonly BeamHypothesis[], output: StepOutput, options: SearchOptions, length: number, freeSlots: number): BeamStep {
  const distributions = stepDistributions(output, beam.length);
  const numAllowed = isLogProbability(options.score) ? freeSlots : options.beamSize + beam.length;
  const best = bestExtensions(beam, distributions, options, length, numAllowed + (options.searchTree ? options.beamSize : 0));
  let numKept = 0;
  best.forEach((extension, rank) => {
    const isPossible = rank < numAllowed;
    extension.ended = isPossible && extension.id === EOS;
    extension.kept = isPossible && extension.id !== EOS && numKept < options.beamSize && length < options.maxLength;
    if (extension.kept) numKept++;
  });
  return { distributions, extensions: best };
}

/** Distributions of all hypotheses. `givenSymbol` is the symbol of a given target, which may be UNK. */
export function stepDistributions({ logits, weights }: StepOutput, numRows: number, givenSymbol = EOS): StepDistribution[] {
  const [size, numPositions] = [logits.length / numRows, weights.length / numRows];
  return Array.from({ length: numRows }, (_, row) => {
    const rowLogits = logits.slice(row * size, (row + 1) * size);
    for (const id of [PAD, BOS, UNK]) if (id !== UNK || givenSymbol !== UNK) rowLogits[id] = -Infinity;
    const logProbabilities = logSoftmax(rowLogits);
    return { logProbabilities, top: topSymbols(logProbabilities), weights: weights.slice(row * numPositions, (row + 1) * numPositions) };
  });
}

function topSymbols(logProbabilities: Float32Array): [number, number][] {
  const best = new BestList<number>(Math.min(NUM_CANDIDATES, logProbabilities.length - 3));
  logProbabilities.forEach((value, id) => best.add(value, id));
  return best.items.map(({ value, item }) => [item, value]);
}

/** The most probable extensions, in falling order. */
function bestExtensions(beam: readonly BeamHypothesis[], distributions: readonly StepDistribution[], options: SearchOptions, length: number, count: number): Extension[] {
  const best = new BestList<readonly [parent: number, id: number]>(count);
  const forced = options.prefix[length];
  beam.forEach(({ cumulative }, parent) => {
    distributions[parent]!.logProbabilities.forEach((logProbability, id) => {
      const isAllowed = forced === undefined ? id !== EOS || length >= options.minLength : id === forced;
      if (isAllowed && logProbability > -Infinity) best.add(Math.fround(cumulative + logProbability), [parent, id]);
    });
  });
  return best.items.map(({ value, item: [parent, id] }) => ({
    parent, id,
    origin: beam[parent]!.origin,
    logProbability: distributions[parent]!.logProbabilities[id]!,
    cumulative: value,
    ended: false,
    kept: false,
  }));
}

/** Records finished outputs; returns whether the best outputs can still change. */
function recordEnds(beam: readonly BeamHypothesis[], steps: readonly BeamStep[], ends: HypothesisEnd[], options: SearchOptions): boolean {
  const { extensions } = steps.at(-1)!;
  const step = steps.length - 1;
  extensions.forEach(({ ended, cumulative, parent }, extension) => {
    if (ended) ends.push({ truncated: false, score: scoreOutput(options.score, cumulative, steps.length, beam[parent]!.coverage), step, extension });
  });
  const kept = extensions.filter((extension) => extension.kept);
  if (kept.length === 0) {
    if (steps.length > options.maxLength || ends.length === 0) ends.push(...truncatedEnds(beam, steps, options));
    return false;
  }
  if (ends.length < options.numOutputs) return true;
  const worst = [...ends].sort(compareEnds)[options.numOutputs - 1]!.score;
  return worst < Math.fround(kept[0]!.cumulative / lengthPenalty(options.score, options.maxLength + 1));
}

/** Ends of the hypotheses that have no EOS after the maximum number of steps. */
function truncatedEnds(beam: readonly BeamHypothesis[], steps: readonly BeamStep[], options: SearchOptions): HypothesisEnd[] {
  const { extensions, distributions } = steps.at(-1)!;
  const ended = new Set(extensions.flatMap((each) => (each.ended ? [each.parent] : [])));
  return beam.flatMap(({ cumulative, coverage, origin }, row) => {
    // The coverage before this step.
    const before = coverage.map((sum, position) => sum - distributions[row]!.weights[position]!);
    return ended.has(row) || origin < 0 ? [] : [{ truncated: true, score: scoreOutput(options.score, cumulative, steps.length - 1, before), step: steps.length - 2, extension: origin }];
  });
}

/** Beam of the extensions that are kept, with their states. */
function nextBeam(beam: readonly BeamHypothesis[], { extensions }: BeamStep, state: DecoderState): [BeamHypothesis[], DecoderState] {
  const kept = extensions.flatMap((extension, origin) => (extension.kept ? [{ ...extension, origin }] : []));
  const next = kept.map(({ id, cumulative, origin, parent }) => ({ symbol: id, cumulative, origin, coverage: beam[parent]!.coverage }));
  return [next, selectHypotheses(state, beam.length, kept.map(({ parent }) => parent))];
}

/** Symbols of an output, from its end back to its beginning. */
function backtrace(steps: readonly BeamStep[], { step, extension }: HypothesisEnd): OutputSymbol[] {
  const symbols: OutputSymbol[] = [];
  for (let [at, index] = [step, extension]; at >= 0; at--) {
    const { id, logProbability, parent, origin } = steps[at]!.extensions[index]!;
    symbols.push({ id, logProbability, distribution: steps[at]!.distributions[parent]! });
    index = origin;
  }
  return symbols.reverse();
}

/** All extensions as nodes of a tree, and a function that returns the node of an extension (−1: it is not in the tree). */
function searchTree(steps: readonly BeamStep[]): { nodes: TreeNode[]; nodeOf: (step: number, extension: number) => number } {
  const starts: number[] = [];
  const nodes: TreeNode[] = [];
  steps.forEach(({ extensions, distributions }, step) => {
    starts.push(nodes.length);
    for (const { id, origin, parent, logProbability, cumulative, ended, kept } of extensions) {
      nodes.push({ id, parent: step > 0 ? starts[step - 1]! + origin : -1, logProbability, cumulative, status: ended ? "ended" : kept ? "kept" : "pruned", distribution: distributions[parent]! });
    }
  });
  return { nodes, nodeOf: (step, extension) => (starts[step] === undefined ? -1 : starts[step] + extension) };
}

/** Symbols of a given target, EOS included, as if they had been decoded. */
export function forceTarget(decoder: SourceDecoder, target: readonly number[], forcedAttention: SearchOptions["forcedAttention"]): OutputSymbol[] {
  let [state, previous] = [decoder.initialState, BOS];
  return target.map((id, step) => {
    const output = decoder.step([previous], state, forcedAttention.get(step) ?? null);
    const [distribution] = stepDistributions(output, 1, id);
    [state, previous] = [output.state, id];
    return { id, logProbability: distribution!.logProbabilities[id]!, distribution: distribution! };
  });
}

/** The greatest values that were added, in falling order; of equal values, the one that was added first. */
class BestList<Item> {
  readonly items: { readonly value: number; readonly item: Item }[] = [];

  constructor(private readonly size: number) {}

  add(value: number, item: Item): void {
    if (this.items.length === this.size && !(value > (this.items.at(-1)?.value ?? Infinity))) return;
    let at = this.items.length;
    while (at > 0 && this.items[at - 1]!.value < value) at--;
    this.items.splice(at, 0, { value, item });
    if (this.items.length > this.size) this.items.pop();
  }
}
