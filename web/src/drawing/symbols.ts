/** Visible forms of symbols: blanks, joiners and direction marks are drawn or named. */

/** Part of a symbol: plain text, a stand-in (␣), or a name in small capitals (ZWJ). */
export interface SymbolPart {
  readonly text: string;
  readonly kind: "plain" | "stand-in" | "name";
}

const STAND_INS: Record<string, string> = { " ": "␣", "\t": "⇥", "\n": "↵", "\r": "␍", "\u00a0": "⍽" };
const NAMES: Record<number, string> = {
  0x00ad: "SHY", 0x061c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM", 0x200f: "RLM",
  0x2028: "LSEP", 0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfe0e: "VS15", 0xfe0f: "VS16", 0xfeff: "BOM",
};
const WORDS: Record<string, string> = {
  "": "empty symbol", " ": "space", "\t": "tab", "\n": "line break", "\r": "carriage return", "\u00a0": "no-break space",
};
const BLANK = /[\p{Z}\p{C}]/u;
const MARK = /\p{M}/u;
const JOINED_EMOJI = /\p{Extended_Pictographic}|\p{Regional_Indicator}/u;

function code(point: number): string {
  return `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
}

function partOf(letter: string): SymbolPart {
  const point = letter.codePointAt(0) ?? 0;
  const standIn = STAND_INS[letter];
  if (standIn !== undefined) return { text: standIn, kind: "stand-in" };
  if (NAMES[point] !== undefined || BLANK.test(letter)) return { text: NAMES[point] ?? code(point), kind: "name" };
  return { text: letter, kind: "plain" };
}

/** Parts of a symbol; adjacent plain parts are merged. */
export function symbolParts(symbol: string): SymbolPart[] {
  if (symbol === "") return [{ text: "∅", kind: "stand-in" }];
  // Joiners and variation selectors within an emoji are not shown.
  if (JOINED_EMOJI.test(symbol)) return [{ text: symbol, kind: "plain" }];
  const parts: SymbolPart[] = [];
  for (const letter of symbol) {
    const next = partOf(letter);
    const last = parts.at(-1);
    if (next.kind !== "plain") parts.push(next);
    else if (last?.kind === "plain") parts[parts.length - 1] = { text: last.text + letter, kind: "plain" };
    // A combining mark without a base letter is drawn on a dotted circle.
    else parts.push(MARK.test(letter) ? { text: `◌${letter}`, kind: "plain" } : next);
  }
  return parts;
}

/** Visible form of a symbol as text. */
export const visibleSymbol = (symbol: string): string => symbolParts(symbol).map((part) => part.text).join("");

/** Visible form of a symbol within a text, with delimited names. */
const delimitedSymbol = (symbol: string): string => symbolParts(symbol).map(({ text, kind }) => (kind === "name" ? `⟨${text}⟩` : text)).join("");

/** Letters of right-to-left scripts. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** Text within a sentence of another direction; right-to-left text is isolated. */
export const isolate = (text: string): string => (RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text);
/** Text without the marks of `isolate`, for data files. */
export const withoutIsolates = (text: string): string => text.replaceAll(/[\u2068\u2069]/g, "");

/** Direction of a list of symbols: that of their first letter. */
export const textDirection = (symbols: readonly string[]): "ltr" | "rtl" => (RIGHT_TO_LEFT.test(/\p{L}/u.exec(symbols.filter((symbol) => !SPECIAL_SYMBOL.test(symbol)).join(" "))?.[0] ?? "") ? "rtl" : "ltr");
/** Special symbols, such as the end symbol. */
const SPECIAL_SYMBOL = /^⟨.+⟩$/;

/** Form of a symbol for screen readers. */
export function spokenSymbol(symbol: string): string {
  return WORDS[symbol] ?? isolate(visibleSymbol(symbol));
}

// Combining marks belong to the preceding letter.
const letters = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Visible form of a text; only leading, trailing and repeated spaces are marked. */
export function visibleText(text: string): string {
  return Array.from(letters.segment(text), ({ segment }) => (segment === " " ? " " : delimitedSymbol(segment))).join("").replace(/^ +| +$|  +/g, (run) => "␣".repeat(run.length)).normalize("NFC");
}

/** Visible form, quoted in a sentence. */
export const quote = (text: string): string => `“${isolate(text)}”`;
/** Symbol, and text, quoted in a sentence. */
export const quoteSymbol = (symbol: string): string => quote(visibleSymbol(symbol));
export const quoteText = (text: string): string => (text ? quote(visibleText(text)) : "nothing");

/** Label of two paired steps: their symbol, or both symbols. */
export const pairLabel = (one: string, other: string): string => (one === other ? one : `${visibleSymbol(one)}/${visibleSymbol(other)}`);

/** Number of each symbol among its repetitions, from 1; null if it is unique. */
export function repeatNumbers(symbols: readonly string[]): (number | null)[] {
  const counts = new Map<string, number>();
  for (const symbol of symbols) counts.set(symbol, (counts.get(symbol) ?? 0) + 1);
  const occurrences = new Map<string, number>();
  return symbols.map((symbol) => {
    if ((counts.get(symbol) ?? 0) < 2) return null;
    const number = (occurrences.get(symbol) ?? 0) + 1;
    occurrences.set(symbol, number);
    return number;
  });
}

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f300}-\u{1faff}\u{1f1e6}-\u{1f1ff}]/u;

/** Approximate width of a symbol, in units of the letter size. */
export function textWidth(symbol: string): number {
  if (JOINED_EMOJI.test(symbol)) return 1.3;
  let width = 0;
  for (const part of symbolParts(symbol)) {
    for (const letter of part.text) width += MARK.test(letter) ? 0 : WIDE.test(letter) ? 1.05 : part.kind === "name" ? 0.5 : 0.6;
  }
  return width;
}

/** Note on a symbol outside the vocabulary. */
export const UNKNOWN_NOTE = "not in the vocabulary";

/** Maximum number of unknown symbols in a sentence. */
const MAX_NAMED_UNKNOWN = 8;

/** Sentence on the symbols that a model does not know; "" for none. `model`: name of its run, where several are shown. */
export function describeUnknown(symbols: readonly string[], model?: string): string {
  const quoted = [...new Set(symbols)].map(quoteSymbol);
  if (quoted.length === 0) return "";
  const named = quoted.length > MAX_NAMED_UNKNOWN ? `${quoted.slice(0, MAX_NAMED_UNKNOWN).join(", ")} and ${quoted.length - MAX_NAMED_UNKNOWN} more symbols` : quoted.length > 1 ? `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1)}` : quoted[0];
  return `${model === undefined ? "The model" : `Model ${quoteText(model)}`} does not know ${named} (marked in the pictures). It reads every symbol outside its vocabulary as the same unknown symbol.`;
}

/** Suffix of a label for screen readers. */
export const unknownSuffix = (of: ReadonlySet<number> | undefined, index: number): string => (of?.has(index) ? `, ${UNKNOWN_NOTE}` : "");
