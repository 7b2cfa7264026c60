/** What is known of an output beside its attention (evidence, states, gates): from the file, or asked of the service once. */
import type { Asked, Evidence, Item, States, Trace } from "./contents";
import { page } from "./page.svelte";
import { asking } from "./question";
import { decode, words } from "./service";

interface Known {
  evidence: Evidence | null;
  states: States | null;
}

export const END = "⟨end⟩";

/** Two traces are one where they read and wrote the same. */
const key = (trace: Trace): string => JSON.stringify([trace.source, trace.target]);

class Beside {
  asking = $state(false);
  error = $state("");
  private known = $state.raw(new Map<string, Known>());

  evidence(trace: Trace): Evidence | null {
    return trace.evidence ?? this.known.get(key(trace))?.evidence ?? null;
  }
  states(trace: Trace): States | null {
    const asked = this.known.get(key(trace))?.states;
    // Gates are asked for later than states: the fuller answer counts.
    return asked && Object.keys(asked.gates ?? {}).length > 0 ? asked : (trace.states ?? asked ?? null);
  }

  askEvidence(item: Item, trace: Trace): Promise<void> {
    return this.ask(item, trace, { evidence: true });
  }
  askStates(item: Item, trace: Trace, gates = false): Promise<void> {
    return this.ask(item, trace, { states: true, gates });
  }

  private async ask(item: Item, trace: Trace, what: Partial<Asked>): Promise<void> {
    if (!page.served || this.asking) return;
    this.asking = true;
    this.error = "";
    try {
      const answer = await decode({ ...asking(item), prefix: trace.target, ...what });
      const found = answer.traces[0];
      if (!found || key(found) !== key(trace)) throw new Error("The model goes on differently when it is asked for this output alone, so nothing is shown.");
      const before = this.known.get(key(trace));
      const next = { evidence: found.evidence ?? before?.evidence ?? null, states: found.states ?? before?.states ?? null };
      this.known = new Map(this.known).set(key(trace), next);
    } catch (error) {
      this.error = words(error);
    } finally {
      this.asking = false;
    }
  }
}

export const beside = new Beside();
