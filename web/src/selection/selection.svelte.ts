/** The one selection that all panels share: what is pointed at in one is lit in all. */
import { hashChoice, parseHash, showHash, hashInteger, formatHash } from "./addressHash";
import type { IndexRange } from "../drawing/layout";
import { Pointer } from "./pointer.svelte";
import type { ColorScale } from "../drawing/scales";

/** A wish for the what-if tab: this source, with this beginning of the output. */
export interface ForcedPrefix {
  readonly text: string;
  readonly features: string[];
  readonly prefix: string[];
}

export const ATTRIBUTION_LAYERS = ["attention", "occlusion", "gradient"] as const;
export const COLOR_SCALES = ["unit", "row"] as const satisfies ColorScale[];
export type AttributionLayer = (typeof ATTRIBUTION_LAYERS)[number];

/** Milliseconds within which going on to another example is one walk, which Back undoes as one. */
const WALK = 1000;

class Selection extends Pointer {
  /** The open tab's name (tabs.ts). */
  tab = $state.raw("examples");
  /** The tab and the example that the address names: another one is a step that Back undoes. */
  private addressed: string | null = null;
  /** When an example was last chosen: those that one only walks past on the way to another are no steps. */
  private chosen = -Infinity;
  /** Where one begins: the first example that is wrong, if there is one. */
  first = 0;
  /** Place in `Contents.examples`. */
  example = $state.raw(0);
  /** Which of the example's outputs. */
  output = $state.raw(0);
  /** The node of the beam that is looked at; null: the output itself. */
  node = $state.raw<number | null>(null);
  /** A node under the pointer, for as long as it is there. */
  nodeHovered = $state.raw<number | null>(null);
  /** Whether weights are drawn against 1 or against the greatest of their row. */
  scale = $state.raw<ColorScale>("unit");
  /** What the pictures show. */
  layer = $state.raw<AttributionLayer>("attention");
  /** The share of each row's weight that the links show. */
  mass = $state.raw(0.95);
  /** The positions and the steps that long pictures are zoomed to; null: all. */
  columns = $state.raw<IndexRange | null>(null);
  rows = $state.raw<IndexRange | null>(null);
  /** A source typed by the reader, and what filters the list: both belong to a link. */
  typed = $state.raw("");
  pattern = $state.raw("");
  /** The kind of error whose examples alone are listed (`keyOf` in browse.ts); "": not one. */
  confusion = $state.raw("");
  /** What the what-if tab has changed, as the address holds it (question.ts). */
  edit = $state.raw("");
  /** What the what-if tab is asked to do; it sets it back to null. */
  wish = $state.raw<ForcedPrefix | null>(null);

  /** The node whose attention is shown. */
  get shownNode(): number | null {
    return this.nodeHovered ?? this.node;
  }

  /** Esc: nothing is locked or pointed at. */
  override free(): void {
    super.free();
    this.nodeHovered = null;
    this.node = null;
  }

  /** Another example: steps, positions and nodes of the old one mean nothing there. */
  choose(example: number, output = 0): void {
    if (example !== this.example || output !== this.output) this.free();
    if (example !== this.example) this.columns = null;
    this.rows = null;
    this.edit = "";
    this.example = example;
    this.output = output;
  }

  /** Opens the what-if tab with this beginning of the output. */
  force(wish: ForcedPrefix): void {
    this.wish = wish;
    this.tab = "what-if";
  }

  get hash(): string {
    const pinned = this.pinned;
    return formatHash([
      ["tab", this.tab === "examples" ? null : this.tab],
      ["example", this.example === this.first ? null : this.example],
      ["output", this.output || null],
      ["node", this.node],
      ["step", pinned?.step],
      ["position", pinned?.position],
      ["scale", this.scale === "unit" ? null : this.scale],
      ["layer", this.layer === "attention" ? null : this.layer],
      ["filter", this.pattern],
      ["confusion", this.confusion],
      ["typed", this.typed],
      ["mass", this.mass === 0.95 ? null : this.mass],
      ["edit", this.edit],
    ]);
  }

  /** Takes over what a hash says; `examples` and `tabs` are what there is, `first` is where one begins. */
  restore(hash: string, examples: number, tabs: readonly [string, ...string[]], first = 0): void {
    const told = parseHash(hash);
    this.first = first;
    const example = hashInteger(told, "example", first);
    this.tab = hashChoice(told, "tab", tabs);
    this.example = example < examples ? example : first;
    this.addressed = this.place;
    this.edit = told.get("edit") ?? "";
    this.output = hashInteger(told, "output", 0);
    this.node = hashInteger(told, "node", null);
    this.scale = hashChoice(told, "scale", COLOR_SCALES);
    this.layer = hashChoice(told, "layer", ATTRIBUTION_LAYERS);
    this.pattern = told.get("filter") ?? "";
    this.confusion = told.get("confusion") ?? "";
    this.typed = told.get("typed") ?? "";
    const mass = Number(told.get("mass") ?? 0.95);
    this.mass = mass > 0 && mass <= 1 ? mass : 0.95;
    const step = hashInteger(told, "step", null);
    const position = hashInteger(told, "position", null);
    this.pinned = step === null && position === null ? null : { step, position };
  }

  private get place(): string {
    return `${this.tab} ${this.example}`;
  }

  /** Shows the selection in the address. */
  remember(): void {
    const [before, place] = [this.addressed, this.place];
    const moved = before !== null && before !== place;
    const walking = performance.now() - this.chosen < WALK && before?.split(" ")[0] === this.tab;
    if (moved) this.chosen = performance.now();
    showHash(this.hash, moved && !walking);
    this.addressed = place;
  }
}

export const selection = new Selection();
