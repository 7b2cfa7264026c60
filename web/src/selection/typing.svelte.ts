/** A source typed by the reader: the answer comes while one types, the latest one only, whichever view is open. */
import { untrack } from "svelte";
import { decode, later } from "../data/service";
import { page } from "./page.svelte";
import { BLANK } from "./question";
import { selection } from "./selection.svelte";

class Typing {
  features = $state.raw("");
  problem = $state.raw("");
  /** What an address told to be typed: its answer leaves alone what else the address told. */
  told = "";

  /** How many outputs a source has here. */
  private readonly width = $derived(Math.max(1, ...page.items.slice(0, 20).map((item) => item.traces.length)));

  /** For as long as the page is open. */
  watch(): void {
    $effect(() => {
      const typed = selection.typed;
      const features = this.features.trim() === "" ? [] : this.features.trim().split(/\s+/);
      if (typed === "" || !page.served) {
        page.live = null;
        this.problem = "";
        return;
      }
      const [outputs, lattice] = untrack(() => [this.width, page.items.some((item) => item.traces[0]?.lattice)]);
      return later(
        120,
        (signal) => decode({ ...BLANK, text: typed, features, beam_size: outputs, outputs, lattice }, signal),
        (item) => {
          page.live = item;
          if (this.told !== typed) selection.choose(selection.item, 0);
          this.told = this.problem = "";
        },
        (why) => (this.problem = why),
      );
    });
    // Another example was chosen: what was typed is done with.
    let answered = false;
    $effect(() => {
      if (answered && page.live === null && this.problem === "") selection.typed = "";
      answered = page.live !== null || this.problem !== "";
    });
  }
}

export const typing = new Typing();
