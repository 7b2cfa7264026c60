/** Sections of a report, and search in its examples. */
import type { ReportDocument, ReportExample, Trace } from "../data/contents";
import { isolate, visibleSymbol, visibleText } from "../drawing/symbols";

export type DocumentPart = ReportDocument["parts"][number];

export interface ReportSection {
  readonly title: string;
  readonly parts: DocumentPart[];
}

/** Groups adjacent parts of the same title. */
export function groupSections(parts: readonly DocumentPart[]): ReportSection[] {
  const sections: ReportSection[] = [];
  for (const part of parts) {
    const last = sections.at(-1);
    if (last?.title === part.title) last.parts.push(part);
    else sections.push({ title: part.title, parts: [part] });
  }
  return sections;
}

/** Paragraphs of a text, each on one line. */
export const splitParagraphs = (text: string): string[] =>
  text.split(/\n\s*\n/).map((part) => part.trim().replaceAll(/\s+/g, " ")).filter((part) => part !== "");

const NUMBER = /^(–|[<>≥]? ?[-+−]?[\d.,]+( ?(%|s|ms|groups))?( (to|–) [-+−]?[\d.,]+)?( \(.*\))?)?$/;

/** Whether all cells of a column are numbers, which are aligned to the right. */
export const isNumericColumn = (rows: readonly (readonly string[])[], column: number): boolean =>
  rows.every((row) => NUMBER.test(row[column] ?? "")) && rows.some((row) => row[column]);

/** Error of one symbol as a search term: “i→ɪ”. */
export const errorName = (expected: string | null, predicted: string | null): string =>
  [expected, predicted].map((symbol) => (symbol === null ? "–" : visibleSymbol(symbol))).join("→");

export type ErrorKind = "substitution" | "insertion" | "deletion";
export const ERROR_KINDS: readonly ErrorKind[] = ["substitution", "insertion", "deletion"];
export type ErrorOrder = "worst" | "probability" | "edits";

const kindOf = ([expected, predicted]: readonly [string | null, string | null]): ErrorKind => (expected === null ? "insertion" : predicted === null ? "deletion" : "substitution");

/** Log-probability of the output of the last run. */
export const exampleScore = ({ outputs: examples }: ReportExample): number => examples.at(-1)?.traces[0]?.score ?? 0;

/** Searchable text of an example, in lower case. */
function searchableText({ outputs: examples, errors, group }: ReportExample): string {
  const texts = examples.flatMap((example) => [example.text, example.traces[0]?.output ?? "", ...example.references]);
  return [...texts, group, ...errors.map(([expected, predicted]) => errorName(expected, predicted))].join(" ").toLowerCase();
}

/** Examples that contain all words of a search and an error of a kind ("": any), in an order. */
export function filterExamples(examples: readonly ReportExample[], search: string, kind: ErrorKind | "", order: ErrorOrder): ReportExample[] {
  const searchedWords = search.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const selected = examples.filter((example) => {
    const exampleText = searchedWords.length > 0 ? searchableText(example) : "";
    return searchedWords.every((word) => exampleText.includes(word)) && (kind === "" || example.errors.some((error) => kindOf(error) === kind));
  });
  if (order === "probability") return selected.sort((a, b) => exampleScore(b) - exampleScore(a));
  if (order === "edits") return selected.sort((a, b) => (b.edits ?? 0) - (a.edits ?? 0));
  return selected;
}

/** Notes on an output: truncated, empty, unknown symbols. */
export function outputNotes(trace: Trace): string[] {
  const unknown = [...new Set(trace.unknown.map((position) => visibleSymbol(trace.source[position] ?? "")))];
  return [
    ...(trace.finished ? [] : ["The output is truncated at the maximum length."]),
    ...(trace.target.length > 0 ? [] : ["The output is empty."]),
    ...(trace.source.length > 0 ? [] : ["The source is empty."]),
    ...(unknown.length > 0 ? [`Not in the vocabulary: ${unknown.map(isolate).join(" ")}.`] : []),
  ];
}

/** Source and output in one line, with isolated text directions. */
export const exampleTitle = ({ source, num_features: numFeatures, output }: Trace, text: string): string =>
  `${source.slice(0, numFeatures).map((feature) => `${visibleText(feature)} `).join("")}\u2068${visibleText(text) || "nothing"}\u2069 → \u2068${visibleText(output) || "nothing"}\u2069`;
