/** Texts and symbols: splitting of sources, joining of outputs. As pellucid/data/tokenizers.py. */
import type { StoredModel } from "./modelFile";
import { UNK, type Vocabulary } from "./vocabulary";

/** Source in symbols and ids. */
export interface EncodedSource {
  readonly text: string;
  /** Symbols at the positions of the encoder: features, unless they are summed, then the source. */
  readonly symbols: readonly string[];
  /** Number of features at the beginning. */
  readonly numFeatures: number;
  /** Features that are added to all symbols. */
  readonly summedFeatures: readonly string[];
  readonly ids: readonly number[];
  /** Ids of the features. */
  readonly featureIds: readonly number[];
  /** Positions of symbols that the vocabulary lacks. */
  readonly unknown: readonly number[];
  /** Target id of each position's symbol when it is copied: V + its first position if the target vocabulary lacks it; −1 for features. */
  readonly copyIds: readonly number[];
}

/** White space of Python, at which words are separated. */
const WHITE_SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

/** Marks of stress, upstep and downstep: modifier letters of Unicode that precede a syllable, and belong to no letter. */
const NO_BOUNDARY = "(?![ˈˌ\\ua71b-\\ua71e])";
const MODIFIER = `${NO_BOUNDARY}[\\p{Lm}\\u02b0-\\u02ff\\u2070-\\u207f\\ua700-\\ua71f\\ua789\\u00b2\\u00b3\\u00b9]`;
const LETTER = `${NO_BOUNDARY}\\p{L}`;
const TIE_BAR = "[\\u035c\\u0361]";
/** Marks and modifiers of a letter, other than tie bars. */
const UNTIED = `(?:(?!${TIE_BAR})(?:\\p{M}|${MODIFIER}))*`;
/** Phone in the International Phonetic Alphabet, as pellucid/data/ipa_phones.py: a letter with its marks and modifiers, a tie bar with the next letter; or another character with its marks. */
const PHONE = new RegExp(`(?:${LETTER}|${MODIFIER})${UNTIED}(?:${TIE_BAR}(?:\\p{M}|${MODIFIER})*(?:${LETTER})?${UNTIED})*|[^]\\p{M}*`, "gu");

/** Symbols of a text. */
export function splitText(kind: string, text: string): string[] {
  if (text === "") return [];
  if (kind === "characters") return [...text];
  if (kind === "ipa") return text.match(PHONE) ?? [];
  if (kind === "words") return text.split(WHITE_SPACE).filter((word) => word !== "");
  return kind === "whole" ? [text] : text.split(kind);
}

/** Text of symbols. */
export function joinSymbols(kind: string, symbols: readonly string[]): string {
  const separator = { characters: "", ipa: "", subwords: "", words: " ", whole: "\t", position: "\t" }[kind];
  return symbols.join(separator ?? kind);
}

export interface ModelVocabularies {
  readonly source: Vocabulary;
  readonly features: Vocabulary;
  readonly target: Vocabulary;
}

/** Encodes a source with its features. */
export function encodeSource(settings: StoredModel["settings"], { source, features, target }: ModelVocabularies, text: string, given: readonly string[]): EncodedSource {
  const { source_symbols: kind, source_normalization: form } = settings.data;
  const own = splitText(kind, form === "none" ? text : text.normalize(form === "nfc" ? "NFC" : "NFD"));
  const used = own.length > 0 ? given : [];
  const summed = settings.encoder.feature_merge === "sum";
  const featureIds = used.map((feature) => source.size + (features.id(feature) ?? UNK));
  const numFeatures = summed ? 0 : used.length;
  const symbols = [...(summed ? [] : used), ...own];
  const ids = [...(summed ? [] : featureIds), ...own.map((symbol) => source.id(symbol) ?? UNK)];
  return {
    text, symbols, numFeatures, ids,
    summedFeatures: summed ? used : [],
    featureIds: summed ? featureIds : [],
    unknown: ids.flatMap((id, position) => (id === UNK || id === source.size + UNK ? [position] : [])),
    copyIds: symbols.map((symbol, position) => (position < numFeatures ? -1 : (target.id(symbol) ?? target.size + symbols.indexOf(symbol, numFeatures)))),
  };
}
