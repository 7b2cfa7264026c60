/** What a report shows, in the order and the groups in which it is drawn. Pure. */
import type { ReportDocument, ReportExample, Trace } from "../data/contents";
import { shown, shownText } from "../drawing/symbols";

export type Part = ReportDocument["parts"][number];

export interface Section {
  readonly title: string;
  readonly parts: Part[];
}

/** Parts under their titles: neighbors of one title share a section. */
export function sections(parts: readonly Part[]): Section[] {
  const found: Section[] = [];
  for (const part of parts) {
    const last = found.at(-1);
    if (last?.title === part.title) last.parts.push(part);
    else found.push({ title: part.title, parts: [part] });
  }
  return found;
}

/** The paragraphs of a text, each on one line. */
export const paragraphs = (text: string): string[] =>
  text.split(/\n\s*\n/).map((part) => part.trim().replaceAll(/\s+/g, " ")).filter((part) => part !== "");

const NUMBER = /^(–|[<>≥]? ?[-+−]?[\d.,]+( ?(%|s|ms|groups))?( (to|–) [-+−]?[\d.,]+)?( \(.*\))?)?$/;

/** Columns of numbers, which are aligned to the right: all of their cells are numbers, and not all are empty. */
export const numeric = (rows: readonly (readonly string[])[], column: number): boolean =>
  rows.every((row) => NUMBER.test(row[column] ?? "")) && rows.some((row) => row[column]);

/** An error of one symbol in one word, as it is searched for: “i→ɪ”. */
export const errorName = (expected: string | null, predicted: string | null): string =>
  [expected, predicted].map((symbol) => (symbol === null ? "–" : shown(symbol))).join("→");

export type ErrorKind = "substitution" | "insertion" | "deletion";
export const KINDS: readonly ErrorKind[] = ["substitution", "insertion", "deletion"];
export type ErrorOrder = "given" | "probability" | "edits";

const kindOf = ([expected, predicted]: readonly [string | null, string | null]): ErrorKind => (expected === null ? "insertion" : predicted === null ? "deletion" : "substitution");

/** Log-probability of the output that is judged: that of the last run. */
export const score = ({ items }: ReportExample): number => items.at(-1)?.traces[0]?.score ?? 0;

/** All words of an example, in lower case. */
function words({ items, errors, group }: ReportExample): string {
  const texts = items.flatMap((item) => [item.text, item.traces[0]?.output ?? "", ...item.references]);
  return [...texts, group, ...errors.map(([expected, predicted]) => errorName(expected, predicted))].join(" ").toLowerCase();
}

/** The examples that hold every word of a search and an error of a kind (of any, where it is ""), in an order. */
export function found(examples: readonly ReportExample[], search: string, kind: ErrorKind | "", order: ErrorOrder): ReportExample[] {
  const looked = search.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const kept = examples.filter((example) => {
    const own = looked.length > 0 ? words(example) : "";
    return looked.every((word) => own.includes(word)) && (kind === "" || example.errors.some((error) => kindOf(error) === kind));
  });
  if (order === "probability") return kept.sort((a, b) => score(b) - score(a));
  if (order === "edits") return kept.sort((a, b) => (b.edits ?? 0) - (a.edits ?? 0));
  return kept;
}

/** What pictures of an output do not tell. */
export function notes(trace: Trace): string[] {
  const unknown = [...new Set(trace.unknown.map((position) => shown(trace.source[position] ?? "")))];
  return [
    ...(trace.finished ? [] : ["The output was cut off at the maximum length."]),
    ...(trace.target.length > 0 ? [] : ["The output is empty."]),
    ...(trace.source.length > 0 ? [] : ["The source is empty."]),
    ...(unknown.length > 0 ? [`Not in the training data: ${unknown.join(" ")}.`] : []),
  ];
}

/** Source and output in one line, each kept from turning the other round. */
export const headline = ({ source, features, output }: Trace, text: string): string =>
  `${source.slice(0, features).map((feature) => `${shownText(feature)} `).join("")}\u2068${shownText(text) || "nothing"}\u2069 → \u2068${shownText(output) || "nothing"}\u2069`;
