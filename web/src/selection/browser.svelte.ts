/** What the list of examples shows: one state, so that a click in another view can set it. */
import { EVERYTHING, type Filter, type Order } from "./browse";
import { selection } from "./selection.svelte";

class Browser {
  filter = $state.raw<Filter>(EVERYTHING);
  order = $state.raw<Order>("file");
  descending = $state.raw(false);

  /** Whether the list is to take the focus: what led to it is gone. */
  reach = $state.raw(false);

  /** Opens the list with these examples alone. */
  only(places: number[], why: string): void {
    if (places.length === 0) return;
    this.filter = { ...EVERYTHING, only: { places, why } };
    selection.pattern = "";
    if (!places.includes(selection.item)) selection.choose(places[0]!);
    selection.tab = "examples";
    this.reach = true;
  }

  /** The list with all examples. */
  everything(): void {
    this.filter = EVERYTHING;
    selection.pattern = "";
    this.reach = true;
  }
}

export const browser = new Browser();
