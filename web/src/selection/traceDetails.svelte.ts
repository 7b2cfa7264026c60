/** Details of an output (attribution, states, gates), requested once from the server. */
import type { DecodeRequest, PageExample, Trace } from "../data/contents";
import { traceKey, page } from "./page.svelte";
import { requestFor } from "./request";
import { requestDecode, errorMessage } from "../data/api";

class Beside {
  asking = $state.raw(false);
  error = $state.raw("");

  /** Requests details of an output. */
  async ask(example: PageExample, trace: Trace, what: Partial<Pick<DecodeRequest, "attribution" | "states" | "gates">>): Promise<void> {
    if (!page.served || this.asking) return;
    this.asking = true;
    this.error = "";
    try {
      const answer = await requestDecode({ ...requestFor(example), prefix: trace.target, ...what });
      const found = answer.traces[0];
      if (!found || traceKey(found) !== traceKey(trace)) throw new Error("The model does not reproduce this output, so its states and attributions are not shown.");
      const known = { ...page.known.get(traceKey(trace)) };
      if (found.attribution) known.attribution = found.attribution;
      if (found.states) known.states = found.states;
      page.known = new Map(page.known).set(traceKey(trace), known);
    } catch (error) {
      this.error = errorMessage(error);
    } finally {
      this.asking = false;
    }
  }
}

export const traceDetails = new Beside();
