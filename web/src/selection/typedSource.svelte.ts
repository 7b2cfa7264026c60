/** A source typed by the reader: the answer comes while one types, the latest one only, whichever view is open. */
import { untrack } from "svelte";
import { requestDecode, debounceRequest } from "../data/api";
import { page } from "./page.svelte";
import { EMPTY_REQUEST } from "./request";
import { selection } from "./selection.svelte";

class Typing {
  features = $state.raw("");
  problem = $state.raw("");
  /** What an address told to be typed: its answer leaves alone what else the address told. */
  told = "";

  /** How many outputs a source has here. */
  private readonly width = $derived(Math.max(1, ...page.examples.slice(0, 20).map((example) => example.traces.length)));

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
      const [outputs, lattice] = untrack(() => [this.width, page.examples.some((example) => example.traces[0]?.lattice)]);
      return debounceRequest(
        120,
        (signal) => requestDecode({ ...EMPTY_REQUEST, text: typed, features, beam_size: outputs, num_outputs: outputs, lattice }, signal),
        (example) => {
          page.live = example;
          if (this.told !== typed) selection.choose(selection.example, 0);
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

export const typedSource = new Typing();
