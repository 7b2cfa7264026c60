/** What a service knows of an output beside its attention (evidence, states, gates): asked for once, then part of `page.trace`. */
import type { Asked, Item, Trace } from "../data/contents";
import { key, page } from "./page.svelte";
import { asking } from "./question";
import { decode, words } from "../data/service";

class Beside {
  asking = $state.raw(false);
  error = $state.raw("");

  /** Asks for more about this output of this item. */
  async ask(item: Item, trace: Trace, what: Partial<Pick<Asked, "evidence" | "states" | "gates">>): Promise<void> {
    if (!page.served || this.asking) return;
    this.asking = true;
    this.error = "";
    try {
      const answer = await decode({ ...asking(item), prefix: trace.target, ...what });
      const found = answer.traces[0];
      if (!found || key(found) !== key(trace)) throw new Error("The model does not give this output when it is asked for it alone, so nothing is shown.");
      const known = { ...page.known.get(key(trace)) };
      if (found.evidence) known.evidence = found.evidence;
      if (found.states) known.states = found.states;
      page.known = new Map(page.known).set(key(trace), known);
    } catch (error) {
      this.error = words(error);
    } finally {
      this.asking = false;
    }
  }
}

export const beside = new Beside();
