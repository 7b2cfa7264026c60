/** What the list of examples shows: one state, so that a click in another view can set it. */
import type { Confusion } from "../data/contents";
import { among, EVERYTHING, type Filter, keyOf, type Order } from "./browse";
import { page } from "./page.svelte";
import { selection } from "./selection.svelte";

class Browser {
  filter = $state.raw<Filter>(EVERYTHING);
  order = $state.raw<Order>("file");
  descending = $state.raw(false);

  /** Whether the list is to take the focus: what led to it is gone. */
  reach = $state.raw(false);

  /** The kind of error that the filter is of; "": another filter. */
  private kind = "";

  /** Opens the list with these examples alone. */
  only(places: number[], why: string): void {
    if (places.length === 0) return;
    this.filter = { ...EVERYTHING, only: { places, why } };
    selection.confusion = this.kind = "";
    selection.pattern = "";
    if (!places.includes(selection.item)) selection.choose(places[0]!);
    selection.tab = "examples";
    this.reach = true;
  }

  /** The same with those of one kind of error, which the address tells. */
  confused(each: Confusion): void {
    if (each.examples.length === 0) return;
    this.only(each.examples, among(each, page.items, page.view));
    selection.confusion = this.kind = keyOf(each.wanted, each.written);
  }

  /** Takes over the kind of error that the address tells; one that it tells no more is taken back. */
  restore(): void {
    const each = page.contents.corpus?.confusions.find(({ wanted, written, examples }) => examples.length > 0 && keyOf(wanted, written) === selection.confusion);
    if (!each) selection.confusion = "";
    if (this.kind === selection.confusion) return;
    this.kind = selection.confusion;
    this.filter = each ? { ...EVERYTHING, only: { places: each.examples, why: among(each, page.items, page.view) } } : EVERYTHING;
  }

  /** The list with all examples. */
  everything(): void {
    this.filter = EVERYTHING;
    selection.confusion = this.kind = "";
    selection.pattern = "";
    this.reach = true;
  }
}

export const browser = new Browser();
