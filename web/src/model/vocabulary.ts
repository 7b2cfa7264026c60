/** Symbols and their ids: first the special ids, then the symbols in the order of the vocabulary. */

export const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];
const SPECIAL_NAMES = ["⟨pad⟩", "⟨begin⟩", "⟨end⟩", "⟨unknown⟩"];

export class Vocabulary {
  private readonly ids: ReadonlyMap<string, number>;

  constructor(readonly symbols: readonly string[]) {
    this.ids = new Map(symbols.map((symbol, index) => [symbol, index + SPECIAL_NAMES.length]));
  }

  /** Number of ids. */
  get size(): number {
    return SPECIAL_NAMES.length + this.symbols.length;
  }

  /** Id of a symbol; undefined if the vocabulary lacks it. */
  id(symbol: string): number | undefined {
    return this.ids.get(symbol);
  }

  /** Name of an id; undefined beyond the vocabulary. */
  name(id: number): string | undefined {
    return SPECIAL_NAMES[id] ?? this.symbols[id - SPECIAL_NAMES.length];
  }
}
