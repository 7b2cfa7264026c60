/** The questions that a served page may ask, and its answers; every error is a sentence. */
import type { Asked, Card, Changed, Contents, Difference, Frame, Item, Kept, Nearby, Neighbours, Renewed } from "./contents";

/** What went wrong, in words for the reader. */
export class ServiceError extends Error {}

/** Of what the page shows: a service that shows something else answers none of its questions. */
let identity = "";

async function answer<T>(path: string, init?: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`api/${path}`, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServiceError("The service does not answer. It ends with the command that started it.");
  }
  const body: { error?: string } | null = await response.json().catch(() => null);
  // A question that cannot be answered has a good status, too.
  if (response.ok && body && !body.error) return body as T;
  throw new ServiceError(body?.error || `The service answered ${response.status} and no words.`);
}

function ask<T>(path: string, question: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/json", "x-page": identity };
  return answer<T>(path, { method: "POST", headers, body: JSON.stringify(question), signal: signal ?? null });
}

export async function contents(): Promise<Contents> {
  const told = await answer<Contents>("contents");
  identity = told.identity;
  return told;
}
/** That the newest model is shown from now on: whoever loads the page again sees it. */
export const newest = (): Promise<Renewed> => ask("newest", {});
export const kept = (): Promise<Kept> => ask("kept", {});
export const decode = (asked: Asked, signal?: AbortSignal): Promise<Item> => ask("decode", asked, signal);
export const whatIf = (changed: Changed, signal?: AbortSignal): Promise<Difference> => ask("what-if", changed, signal);
export const neighbours = (nearby: Nearby, signal?: AbortSignal): Promise<Neighbours> =>
  ask("neighbours", nearby, signal);

/** Whether an error only says that a newer question took this one's place. */
export function aborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** What to show for an error of any kind. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Asks after a pause of so many milliseconds; returns how to drop the question, which an effect returns in its turn. */
export function later<T>(pause: number, ask: (signal: AbortSignal) => Promise<T>, done: (answer: T) => void, failed: (why: string) => void): () => void {
  const control = new AbortController();
  const wait = setTimeout(() => {
    ask(control.signal).then(done, (error: unknown) => aborted(error) || failed(words(error)));
  }, pause);
  return () => {
    clearTimeout(wait);
    control.abort();
  };
}

/** What is told of a training: lines of its log, frames of its film, whether somebody trains, and the model card. */
export interface Heard {
  line: (line: Record<string, unknown>) => void;
  frame: (frame: Frame) => void;
  running: (running: boolean) => void;
  card: (card: Card) => void;
}

/** Training as it goes on, from line `since` of the log; returns how to stop listening. */
export function listen(since: number, heard: Heard): () => void {
  const events = new EventSource(`api/training?since=${since}`);
  for (const [name, hear] of Object.entries(heard)) events.addEventListener(name, (event) => hear(JSON.parse(event.data)));
  return () => events.close();
}
