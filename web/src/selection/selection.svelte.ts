/** Selection shared by all panels. */
import { hashChoice, parseHash, showHash, hashInteger, formatHash } from "./addressHash";
import type { IndexRange } from "../drawing/layout";
import { Pointer } from "./pointer.svelte";
import type { ColorScale } from "../drawing/scales";

/** Request to the what-if tab: a source with a forced prefix. */
export interface ForcedPrefix {
  readonly text: string;
  readonly features: string[];
  readonly prefix: string[];
}

export const ATTRIBUTION_LAYERS = ["attention", "occlusion", "gradient"] as const;
export const COLOR_SCALES = ["unit", "row"] as const satisfies ColorScale[];
export type AttributionLayer = (typeof ATTRIBUTION_LAYERS)[number];

/** Examples selected within this interval (ms) share a history entry. */
const SELECTION_INTERVAL = 1000;

class Selection extends Pointer {
  /** Name of the open tab (tabs.ts). */
  tab = $state.raw("examples");
  /** Tab and example of the address; others are a new history entry. */
  private lastAddressKey: string | null = null;
  /** Time of the last selected example. */
  private lastSelectionTime = -Infinity;
  /** Default example: the first wrong one. */
  defaultExample = 0;
  /** Index in `PageContents.examples`. */
  example = $state.raw(0);
  /** Index of the output of the example. */
  output = $state.raw(0);
  /** Locked node of the beam; null: the output. */
  node = $state.raw<number | null>(null);
  /** Hovered node of the beam. */
  nodeHovered = $state.raw<number | null>(null);
  /** Color scale of attention weights. */
  scale = $state.raw<ColorScale>("unit");
  /** Attribution shown by the pictures. */
  layer = $state.raw<AttributionLayer>("attention");
  /** Fraction of each row's weight that the links show. */
  mass = $state.raw(0.95);
  /** Whether pictures show the monotone alignment. */
  showsAlignment = $state.raw(false);
  /** Zoomed positions and steps; null: all. */
  columns = $state.raw<IndexRange | null>(null);
  rows = $state.raw<IndexRange | null>(null);
  /** Typed source, and filter of the examples. */
  typed = $state.raw("");
  pattern = $state.raw("");
  /** Confusion whose examples are listed (`confusionKey`), or "". */
  confusion = $state.raw("");
  /** Change of the what-if tab as encoded in the address (request.ts). */
  edit = $state.raw("");
  /** Pending request to the what-if tab, which resets it to null. */
  pendingPrefix = $state.raw<ForcedPrefix | null>(null);

  /** Node whose attention is shown. */
  get shownNode(): number | null {
    return this.nodeHovered ?? this.node;
  }

  /** Clears the selection (Esc). */
  override clear(): void {
    super.clear();
    this.nodeHovered = null;
    this.node = null;
  }

  /** Selects another example and clears steps, positions and nodes. */
  choose(example: number, output = 0): void {
    if (example !== this.example || output !== this.output) this.clear();
    if (example !== this.example) this.columns = null;
    this.rows = null;
    this.edit = "";
    this.example = example;
    this.output = output;
  }

  /** Opens the what-if tab with a forced prefix. */
  openWhatIf(pendingPrefix: ForcedPrefix): void {
    this.pendingPrefix = pendingPrefix;
    this.tab = "what-if";
  }

  get hash(): string {
    const pinned = this.pinned;
    return formatHash([
      ["tab", this.tab === "examples" ? null : this.tab],
      ["example", this.example === this.defaultExample ? null : this.example],
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

  /** Restores the selection of a hash; `examples` and `tabs` are the valid values, `defaultExample` is used without a valid example. */
  restore(hash: string, examples: number, tabs: readonly [string, ...string[]], defaultExample = 0): void {
    const values = parseHash(hash);
    this.defaultExample = defaultExample;
    const example = hashInteger(values, "example", defaultExample);
    this.tab = hashChoice(values, "tab", tabs);
    this.example = example < examples ? example : defaultExample;
    this.lastAddressKey = this.addressKey;
    this.edit = values.get("edit") ?? "";
    this.output = hashInteger(values, "output", 0);
    this.node = hashInteger(values, "node", null);
    this.scale = hashChoice(values, "scale", COLOR_SCALES);
    this.layer = hashChoice(values, "layer", ATTRIBUTION_LAYERS);
    this.pattern = values.get("filter") ?? "";
    this.confusion = values.get("confusion") ?? "";
    this.typed = values.get("typed") ?? "";
    const mass = Number(values.get("mass") ?? 0.95);
    this.mass = mass > 0 && mass <= 1 ? mass : 0.95;
    const step = hashInteger(values, "step", null);
    const position = hashInteger(values, "position", null);
    this.pinned = step === null && position === null ? null : { step, position };
  }

  private get addressKey(): string {
    return `${this.tab} ${this.example}`;
  }

  /** Writes the selection to the address. */
  writeHash(): void {
    const [before, addressKey] = [this.lastAddressKey, this.addressKey];
    const moved = before !== null && before !== addressKey;
    const stepping = performance.now() - this.lastSelectionTime < SELECTION_INTERVAL && before?.split(" ")[0] === this.tab;
    if (moved) this.lastSelectionTime = performance.now();
    showHash(this.hash, moved && !stepping);
    this.lastAddressKey = addressKey;
  }
}

export const selection = new Selection();
