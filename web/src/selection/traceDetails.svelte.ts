/** Details of an output (attribution, states, gates), requested once from the server. */
import type { DecodeRequest, PageExample, Trace } from "../data/contents";
import { traceKey, page } from "./page.svelte";
import { requestFor } from "./request";
import { requestDecode, errorMessage } from "../data/api";

class TraceDetails {
  isPending = $state.raw(false);
  error = $state.raw("");

  /** Requests details of an output. */
  async request(example: PageExample, trace: Trace, details: Partial<Pick<DecodeRequest, "attribution" | "states" | "gates">>): Promise<void> {
    if (!page.served || this.isPending) return;
    this.isPending = true;
    this.error = "";
    try {
      const response = await requestDecode({ ...requestFor(example), prefix: trace.target, ...details });
      const reproduced = response.traces[0];
      if (!reproduced || traceKey(reproduced) !== traceKey(trace)) throw new Error("The model does not reproduce this output, so its states and attributions are not shown.");
      const requested = { ...page.requestedDetails.get(traceKey(trace)) };
      if (reproduced.attribution) requested.attribution = reproduced.attribution;
      if (reproduced.states) requested.states = reproduced.states;
      page.requestedDetails = new Map(page.requestedDetails).set(traceKey(trace), requested);
    } catch (error) {
      this.error = errorMessage(error);
    } finally {
      this.isPending = false;
    }
  }
}

export const traceDetails = new TraceDetails();
