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
export interface AccuracyInterval {
  label: string;
  correct: number;
  total: number;
  low: number;
  high: number;
  example_indices: number[];
}

/** What else says which positions mattered: T × S each, beside attention. */
export interface AttributionArrays {
  occlusion: EncodedArray;
  input_x_gradient: EncodedArray;
  occlusion_correlation: number | null;
  gradient_correlation: number | null;
}

/** The vectors behind a decoding, and where they lie in the plane of `StateSpace`. */
export interface HiddenStates {
  encoder: EncodedArray;
  decoder: EncodedArray;
  encoder_order: number[];
  decoder_order: number[];
  gates: Record<string, EncodedArray>;
  encoder_pca: EncodedArray | null;
  decoder_pca: EncodedArray | null;
  encoder_neighbors: EncodedArray | null;
  decoder_neighbors: EncodedArray | null;
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
  entropy_is_lower_bound: boolean;
  attribution: AttributionArrays | null;
  states: HiddenStates | null;
}

/** One step of the alignment of an output with its nearest reference. */
export interface EditOperation {
  kind: "deletion" | "insertion" | "same" | "substitution";
  step: number | null;
  expected: string | null;
}

/** One source with its outputs, best first, and what was wanted. */
export interface PageExample {
  text: string;
  features: string[];
  traces: Trace[];
  references: string[];
  edits: EditOperation[];
  errors: number | null;
  exact: boolean | null;
  line: number | null;
  gold_alignment: [number, number][] | null;
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
export interface Histogram {
  name: string;
  labels: string[];
  counts: number[];
  definition: string;
}

/** One kind of error; None stands for no symbol. */
export interface ConfusionCount {
  expected: string | null;
  predicted: string | null;
  count: number;
  num_expected: number;
  example_indices: number[];
}

/** What holds for all examples that were judged, not only for those shown. */
export interface CorpusStatistics {
  num_examples: number;
  scores: Statistic[];
  positions: AccuracyInterval[];
  lengths: AccuracyInterval[];
  confusions: ConfusionCount[];
  alignment: Statistic[];
  distributions: Histogram[];
  mean_attention: EncodedArray | null;
}

/** A validation: what the model wrote for the probes then, and where its symbols' vectors lay. */
export interface TrainingFrame {
  update: number;
  samples: number;
  metrics: Record<string, number>;
  probes: Trace[];
  source_pca: EncodedArray | null;
  target_pca: EncodedArray | null;
}

/** How the model came to be. */
export interface TrainingHistory {
  log: Record<string, unknown>[];
  frames: TrainingFrame[];
  source_symbols: string[];
  target_symbols: string[];
  finished: boolean;
  running: boolean;
  loss_unit: string;
  loss_caption: string;
}

/** A state of the corpus. */
export interface StatePoint {
  example: number;
  context: string;
  symbol: string;
  position: number;
  next_symbol: string;
}

/** States of the corpus in the plane (n × 2) of their two greatest principal components. */
export interface StateProjection {
  coordinates: EncodedArray;
  points: StatePoint[];
  explained_variance_ratio: [number, number];
}

/** The states of many examples. */
export interface StateSpace {
  encoder: StateProjection;
  decoder: StateProjection;
}

/** What the model is. */
export interface ModelCard {
  name: string;
  facts: [string, string][];
  config: string;
  has_attention: boolean;
  task: string;
}

/** Another run (or checkpoint) on the same sources; on `differing` of the file the two outputs are not the same. */
export interface ComparedRun {
  card: ModelCard;
  examples: PageExample[];
  outcomes: [number, number, number, number] | null;
  num_differing: number | null;
  scores: Statistic[];
  positions: AccuracyInterval[];
  lengths: AccuracyInterval[];
  log: Record<string, unknown>[];
}

/** All that a page shows. */
export interface PageContents {
  format: number;
  version: string;
  title: string;
  tasks: Record<string, TaskView>;
  served: boolean;
  page_id: string;
  card: ModelCard | null;
  examples: PageExample[];
  num_examples: number;
  selection_note: string;
  corpus: CorpusStatistics | null;
  training: TrainingHistory | null;
  state_space: StateSpace | null;
  compared_runs: ComparedRun[];
  update: number | null;
  awaiting_model: boolean;
}

/** A row of attention that a person gives. */
export interface AttentionOverride {
  step: number;
  weights: number[];
}

/** A source to decode, and what is given of its output and its attention. */
export interface DecodeRequest {
  text: string;
  features: string[];
  prefix: string[];
  attention_overrides: AttentionOverride[];
  masked_positions: number[];
  beam_size: number;
  num_outputs: number;
  lattice: boolean;
  attribution: boolean;
  states: boolean;
  gates: boolean;
  run: number;
}

/** A what-if: two questions of one model. */
export interface WhatIfRequest {
  before: DecodeRequest;
  after: DecodeRequest;
}

/** What became of it. */
export interface WhatIfResponse {
  before: PageExample;
  after: PageExample;
  compared_output: "after" | "before";
  rescored: Trace;
  kl_divergence: EncodedArray;
}

/** A state, to find those nearest to it. */
export interface NeighborsRequest {
  text: string;
  features: string[];
  target: string[];
  side: "decoder" | "encoder";
  position: number;
  num_neighbors: number;
}

/** A question that its address says whole. */
export interface EmptyRequest {
}

/** The newest model of the run is shown: whoever loads the page anew sees it. */
export interface ReloadResponse {
  update: number | null;
}

/** The first items with all that a page in a file holds of them: it has nobody who could be asked. */
export interface ExportResponse {
  examples: PageExample[];
}

/** A state of the corpus near to the one asked for. */
export interface StateNeighbor {
  point: StatePoint;
  similarity: number;
  next_symbol: string;
}

/** The nearest, nearest first, and next symbols. */
export interface NeighborsResponse {
  num_searched: number;
  neighbors: StateNeighbor[];
  next_symbols: [string, number][];
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
  outputs: PageExample[];
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
  errors: ConfusionCount[];
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
