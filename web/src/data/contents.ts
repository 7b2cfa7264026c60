// Made from pellucid/viewer/contents.py and asking.py by `make page`; not to be edited.

export const FORMAT = 1;

/** Numbers in rows: little-endian float32 in base64. */
export interface Block {
  shape: number[];
  data: string;
}

/** A share right among some, with its 95 % interval in per cent. */
export interface Interval {
  label: string;
  right: number;
  total: number;
  low: number;
  high: number;
  examples: number[];
}

/** Everything a beam considered for one source (search/lattice.py). */
export interface Beam {
  symbols: string[];
  parents: number[];
  log_probabilities: Block;
  scores: Block;
  fates: ("ended" | "kept" | "pruned")[];
  looks: number[];
  attention: Block;
  leaf: number;
}

/** What else says which positions mattered: T × S each, beside attention. */
export interface Evidence {
  erasure: Block;
  gradient: Block;
  erasure_agreement: number | null;
  gradient_agreement: number | null;
}

/** The vectors behind a decoding, and where they lie in the plane of `Space`. */
export interface States {
  encoder: Block;
  decoder: Block;
  encoder_order: number[];
  decoder_order: number[];
  gates: Record<string, Block>;
  encoder_plane: Block | null;
  decoder_plane: Block | null;
  encoder_near: Block | null;
  decoder_near: Block | null;
}

/** One output and how each of its symbols came to be (search/trace.py). */
export interface Trace {
  source: string[];
  features: number;
  unknown: number[];
  target: string[];
  output: string;
  finished: boolean;
  score: number;
  log_probabilities: Block;
  attention: Block;
  top: [string, number][][];
  entropy: Block;
  entropy_least: boolean;
  origin: "given" | "lexicon" | "sample" | "search";
  rank: number;
  probability: number | null;
  search_score: number | null;
  unknown_target: number[];
  forced: number[];
  painted: number[];
  beam: Beam | null;
  evidence: Evidence | null;
  states: States | null;
  task: "classify" | "point" | "tag" | "transduce";
  looks: Block | null;
}

/** One step of the alignment of an output with its nearest reference. */
export interface Edit {
  kind: "deletion" | "insertion" | "same" | "substitution";
  written: number | null;
  wanted: string | null;
}

/** One source with its outputs, best first, and what was wanted. */
export interface Item {
  text: string;
  features: string[];
  traces: Trace[];
  references: string[];
  edits: Edit[];
  errors: number | null;
  exact: boolean | null;
  line: number | null;
  gold: [number, number][] | null;
}

/** One number about the attention of a corpus. */
export interface Statistic {
  name: string;
  value: number | null;
  unit: string;
  low: number | null;
  high: number | null;
  definition: string;
}

/** How often a value came. */
export interface Distribution {
  name: string;
  labels: string[];
  counts: number[];
  definition: string;
}

/** One kind of error; None stands for no symbol. */
export interface Confusion {
  wanted: string | null;
  written: string | null;
  times: number;
  of: number;
  examples: number[];
}

/** What holds for all examples that were judged, not only for those shown. */
export interface Corpus {
  examples: number;
  scores: Statistic[];
  positions: Interval[];
  lengths: Interval[];
  confusions: Confusion[];
  alignment: Statistic[];
  distributions: Distribution[];
  mean_attention: Block | null;
}

/** A validation: what the model wrote for the probes then, and where its symbols' vectors lay. */
export interface Frame {
  update: number;
  samples: number;
  metrics: Record<string, number>;
  probes: Trace[];
  source_plane: Block | null;
  target_plane: Block | null;
}

/** How the model came to be. */
export interface Training {
  log: Record<string, unknown>[];
  frames: Frame[];
  source_symbols: string[];
  target_symbols: string[];
  done: boolean;
  running: boolean;
  unit: string;
  caption: string;
}

/** A state of the corpus. */
export interface Point {
  item: number;
  text: string;
  symbol: string;
  position: number;
  following: string;
}

/** States of the corpus in the plane (n × 2) of their two greatest principal components. */
export interface Cloud {
  plane: Block;
  points: Point[];
  explained: [number, number];
}

/** The states of many examples. */
export interface Space {
  encoder: Cloud;
  decoder: Cloud;
}

/** What the model is. */
export interface Card {
  name: string;
  facts: [string, string][];
  config: string;
  attends: boolean;
  task: "classify" | "point" | "tag" | "transduce";
}

/** Another run (or checkpoint) on the same sources; on `differing` of the file the two outputs are not the same. */
export interface Rival {
  card: Card;
  items: Item[];
  outcomes: [number, number, number, number] | null;
  differing: number | null;
  scores: Statistic[];
  positions: Interval[];
  lengths: Interval[];
  log: Record<string, unknown>[];
}

/** All that a page shows. */
export interface Contents {
  format: number;
  version: string;
  title: string;
  served: boolean;
  identity: string;
  card: Card | null;
  items: Item[];
  total: number;
  choice: string;
  corpus: Corpus | null;
  training: Training | null;
  space: Space | null;
  rivals: Rival[];
  update: number | null;
  awaited: boolean;
}

/** A row of attention that a person gives. */
export interface Painted {
  step: number;
  weights: number[];
}

/** A source to decode, and what is given of its output and its attention. */
export interface Asked {
  text: string;
  features: string[];
  prefix: string[];
  painted: Painted[];
  masked: number[];
  beam_width: number;
  outputs: number;
  lattice: boolean;
  evidence: boolean;
  states: boolean;
  gates: boolean;
  rival: number;
}

/** A what-if: two questions of one model. */
export interface Changed {
  before: Asked;
  after: Asked;
}

/** What became of it. */
export interface Difference {
  before: Item;
  after: Item;
  along: "after" | "before";
  same: Trace;
  divergence: Block;
}

/** A state, to find those nearest to it. */
export interface Nearby {
  text: string;
  features: string[];
  target: string[];
  side: "decoder" | "encoder";
  position: number;
  count: number;
}

/** A question that its address says whole. */
export interface Wish {
}

/** The newest model of the run is shown: whoever loads the page anew sees it. */
export interface Renewed {
  update: number | null;
}

/** The first items with all that a page in a file holds of them: it has nobody who could be asked. */
export interface Kept {
  items: Item[];
}

/** A state of the corpus near to the one asked for. */
export interface Neighbour {
  point: Point;
  similarity: number;
  following: string;
}

/** The nearest, nearest first, and what follows them. */
export interface Neighbours {
  searched: number;
  neighbours: Neighbour[];
  following: [string, number][];
}
