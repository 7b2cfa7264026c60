/** Typed source, decoded while typing; only the latest request is answered. */
import { untrack } from "svelte";
import { requestDecode, debounceRequest } from "../data/api";
import { page } from "./page.svelte";
import { EMPTY_REQUEST } from "./request";
import { selection } from "./selection.svelte";

class TypedSource {
  features = $state.raw("");
  errorText = $state.raw("");
  /** Source typed in a link: its output keeps the rest of the selection of the link. */
  restoredText = "";

  /** Number of outputs per source. */
  private readonly numOutputs = $derived(Math.max(1, ...page.examples.slice(0, 20).map((example) => example.traces.length)));

  /** Watches the input while the page is open. */
  watch(): void {
    $effect(() => {
      const typed = selection.typed;
      const features = this.features.trim() === "" ? [] : this.features.trim().split(/\s+/);
      if (typed === "" || !page.served) {
        page.typedExample = null;
        this.errorText = "";
        return;
      }
      const [outputs, hasTree] = untrack(() => [this.numOutputs, page.examples.some((example) => example.traces[0]?.search_tree)]);
      return debounceRequest(
        120,
        (signal) => requestDecode({ ...EMPTY_REQUEST, text: typed, features, beam_size: outputs, num_outputs: outputs, search_tree: hasTree }, signal),
        (example) => {
          page.typedExample = example;
          if (this.restoredText !== typed) selection.choose(selection.example, 0);
          this.restoredText = this.errorText = "";
        },
        (message) => (this.errorText = message),
      );
    });
    // Selecting another example clears the input.
    let hasResult = false;
    $effect(() => {
      if (hasResult && page.typedExample === null && this.errorText === "") selection.typed = "";
      hasResult = page.typedExample !== null || this.errorText !== "";
    });
  }
}

export const typedSource = new TypedSource();
