// Made by `make page` from decoding/trace_schema.py, tasks/task_view.py and from viewer/schema.py
// and viewer/report_schema.py of pellucid/; do not edit.

export const FORMAT = 1;
export const REPORT_FORMAT = 1;

/** An array in compact form: its shape, and its values, row by row, as little-endian float32 in base64. */
export interface EncodedArray {
  shape: number[];
  data: string;
}

/** The JSON form of a lattice: everything that a beam considered for one source (decoding/search_tree.py). */
export interface Lattice {
  symbols: string[];
  parents: number[];
  log_probabilities: number[] | EncodedArray;
  scores: number[] | EncodedArray;
  fates: ("ended" | "kept" | "pruned")[];
  looks: number[];
  attention: number[][] | EncodedArray;
  leaf: number;
}

/** How outputs of a task are shown. The page branches on these fields, and never on the name of a task. */
export interface TaskView {
  autoregressive: boolean;
  per_position: boolean;
  points: boolean;
  texts: boolean;
  symbol: string;
  symbols: string;
  output: string;
  scores: Record<string, string | null>;
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

/** What else says which positions mattered: T × S each, beside attention. */
export interface Evidence {
  erasure: EncodedArray;
  gradient: EncodedArray;
  erasure_agreement: number | null;
  gradient_agreement: number | null;
}

/** The vectors behind a decoding, and where they lie in the plane of `Space`. */
export interface States {
  encoder: EncodedArray;
  decoder: EncodedArray;
  encoder_order: number[];
  decoder_order: number[];
  gates: Record<string, EncodedArray>;
  encoder_plane: EncodedArray | null;
  decoder_plane: EncodedArray | null;
  encoder_near: EncodedArray | null;
  decoder_near: EncodedArray | null;
}

/** One output and how each of its symbols came to be (decoding/trace.py), with what the page shows beside it. */
export interface Trace {
  version: number;
  text: string;
  output: string;
  score: number;
  finished: boolean;
  source: string[];
  features: number;
  unknown: number[];
  target: string[];
  log_probabilities: number[] | EncodedArray;
  attention: number[][] | EncodedArray;
  top: [string, number][][];
  rank: number;
  origin: "given" | "lexicon" | "sample" | "search";
  probability: number | null;
  search_score: number | null;
  task: string;
  heads: number[][][] | EncodedArray | null;
  looks: number[][] | EncodedArray | null;
  added: string[];
  unknown_target: number[];
  forced: number[];
  painted: number[];
  lattice: Lattice | null;
  entropy: EncodedArray;
  entropy_least: boolean;
  evidence: Evidence | null;
  states: States | null;
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
  mean_attention: EncodedArray | null;
}

/** A validation: what the model wrote for the probes then, and where its symbols' vectors lay. */
export interface Frame {
  update: number;
  samples: number;
  metrics: Record<string, number>;
  probes: Trace[];
  source_plane: EncodedArray | null;
  target_plane: EncodedArray | null;
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
  plane: EncodedArray;
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
  task: string;
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
  tasks: Record<string, TaskView>;
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
  beam_size: number;
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
  divergence: EncodedArray;
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

/** One number of a report's header. */
export interface SummaryValue {
  label: string;
  value: string;
  note: string;
}

/** Paragraphs of plain text, with an empty line between. */
export interface ReportText {
  type: "text";
  title: string;
  text: string;
}

/** Table of texts; its first column names the rows. */
export interface ReportTable {
  type: "table";
  title: string;
  caption: string;
  heads: string[];
  rows: string[][];
  total: boolean;
}

/** Figure as an SVG document, as `pellucid.reporting.figures.svg` writes it. */
export interface ReportFigure {
  type: "figure";
  title: string;
  caption: string;
  svg: string;
}

/** One value of a line, with its interval and its label on hover. */
export interface ChartPoint {
  x: number;
  y: number;
  label: string;
  low: number | null;
  high: number | null;
  tick: string;
}

/** Named line of a chart. */
export interface ChartLine {
  name: string;
  points: ChartPoint[];
  reference: boolean;
}

/** Lines over one horizontal axis. */
export interface ReportChart {
  title: string;
  x_title: string;
  y_title: string;
  lines: ChartLine[];
  low: number;
  high: number;
  numbers: ReportTable | null;
}

/** Charts side by side. */
export interface ReportCharts {
  type: "charts";
  title: string;
  caption: string;
  charts: ReportChart[];
}

/** One source with its outputs. */
export interface ReportExample {
  items: Item[];
  output: [string, boolean][];
  expected: [string, boolean][];
  edits: number | null;
  errors: ([string | null, string | null])[];
  group: string;
}

/** Examples with their attention or their tags, each drawn at once, or listed to be unfolded. */
export interface ReportExamples {
  type: "examples";
  title: string;
  caption: string;
  examples: ReportExample[];
  listed: boolean;
  runs: string[];
}

/** Counts of symbol errors, and of the correct symbols among those that errors were made with. */
export interface ReportConfusions {
  type: "confusions";
  title: string;
  caption: string;
  errors: Confusion[];
  omitted: number;
  correct: Record<string, number>;
}

/** Configuration as TOML. */
export interface ReportSettings {
  type: "settings";
  title: string;
  toml: string;
}

/** Everything that a report shows. Neighboring parts of one title share a section. */
export interface ReportDocument {
  type: "report";
  format: number;
  version: string;
  title: string;
  introduction: string;
  summary: SummaryValue[];
  parts: (ReportText | ReportTable | ReportFigure | ReportCharts | ReportExamples | ReportConfusions | ReportSettings)[];
  tasks: Record<string, TaskView>;
}
