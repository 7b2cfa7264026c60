/** What the list of examples shows: one state, so that a click in another view can set it. */
import type { ConfusionCount } from "../data/contents";
import { describeConfusionShare, NO_FILTER, type ExampleFilter, confusionKey, type SortOrder } from "./exampleRows";
import { page } from "./page.svelte";
import { selection } from "./selection.svelte";

class Browser {
  filter = $state.raw<ExampleFilter>(NO_FILTER);
  order = $state.raw<SortOrder>("file");
  descending = $state.raw(false);

  /** Whether the list is to take the focus: what led to it is gone. */
  reach = $state.raw(false);

  /** The kind of error that the filter is of; "": another filter. */
  private kind = "";

  /** Opens the list with these examples alone. */
  only(places: number[], why: string): void {
    if (places.length === 0) return;
    this.filter = { ...NO_FILTER, only: { places, why } };
    selection.confusion = this.kind = "";
    selection.pattern = "";
    if (!places.includes(selection.example)) selection.choose(places[0]!);
    selection.tab = "examples";
    this.reach = true;
  }

  /** The same with those of one kind of error, which the address tells. */
  confused(each: ConfusionCount): void {
    if (each.example_indices.length === 0) return;
    this.only(each.example_indices, describeConfusionShare(each, page.examples, page.view));
    selection.confusion = this.kind = confusionKey(each.expected, each.predicted);
  }

  /** Takes over the kind of error that the address tells; one that it tells no more is taken back. */
  restore(): void {
    const each = page.contents.corpus?.confusions.find(({ expected, predicted: written, example_indices: examples }) => examples.length > 0 && confusionKey(expected, written) === selection.confusion);
    if (!each) selection.confusion = "";
    if (this.kind === selection.confusion) return;
    this.kind = selection.confusion;
    this.filter = each ? { ...NO_FILTER, only: { places: each.example_indices, why: describeConfusionShare(each, page.examples, page.view) } } : NO_FILTER;
  }

  /** The list with all examples. */
  everything(): void {
    this.filter = NO_FILTER;
    selection.confusion = this.kind = "";
    selection.pattern = "";
    this.reach = true;
  }
}

export const exampleBrowser = new Browser();
