/** Filter and sort order of the example list, which other views can set. */
import type { ConfusionCount } from "../data/contents";
import { describeConfusionShare, NO_FILTER, type ExampleFilter, confusionKey, type SortOrder } from "./exampleRows";
import { page } from "./page.svelte";
import { selection } from "./selection.svelte";

class ExampleBrowser {
  filter = $state.raw<ExampleFilter>(NO_FILTER);
  order = $state.raw<SortOrder>("file");
  descending = $state.raw(false);

  /** Whether the list should take the focus, because the pressed button has disappeared. */
  focusRequested = $state.raw(false);

  /** Confusion of the filter, or "". */
  private listedConfusion = "";

  /** Lists only these examples. */
  listExamples(indices: number[], reason: string): void {
    if (indices.length === 0) return;
    this.filter = { ...NO_FILTER, only: { indices, reason } };
    selection.confusion = this.listedConfusion = "";
    selection.pattern = "";
    if (!indices.includes(selection.example)) selection.choose(indices[0]!);
    selection.tab = "examples";
    this.focusRequested = true;
  }

  /** Lists only the examples of a confusion, which the address stores. */
  listConfusion(each: ConfusionCount): void {
    if (each.example_indices.length === 0) return;
    this.listExamples(each.example_indices, describeConfusionShare(each, page.examples, page.view));
    selection.confusion = this.listedConfusion = confusionKey(each.expected, each.predicted);
  }

  /** Restores the confusion of the address. */
  restore(): void {
    const each = page.contents.corpus?.confusions.find(({ expected, predicted, example_indices: examples }) => examples.length > 0 && confusionKey(expected, predicted) === selection.confusion);
    if (!each) selection.confusion = "";
    if (this.listedConfusion === selection.confusion) return;
    this.listedConfusion = selection.confusion;
    this.filter = each ? { ...NO_FILTER, only: { indices: each.example_indices, reason: describeConfusionShare(each, page.examples, page.view) } } : NO_FILTER;
  }

  /** Lists all examples. */
  listAll(): void {
    this.filter = NO_FILTER;
    selection.confusion = this.listedConfusion = "";
    selection.pattern = "";
    this.focusRequested = true;
  }
}

export const exampleBrowser = new ExampleBrowser();
