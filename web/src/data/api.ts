/** Requests to the local server. Every error is a sentence. */
import type { DecodeRequest, ModelCard, WhatIfRequest, PageContents, WhatIfResponse, TrainingFrame, PageExample, ExportResponse, NeighborsRequest, NeighborsResponse, ReloadResponse } from "./contents";

/** Error with a message for the user. */
export class ServerError extends Error {}

/** Identity of the shown contents; the server refuses requests of other pages. */
let identity = "";

async function answer<T>(path: string, init?: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`api/${path}`, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServerError("The server does not respond. It stops with the command that started it.");
  }
  const body: { error?: string } | null = await response.json().catch(() => null);
  // Rejected requests have status 200 and an error message.
  if (response.ok && body && !body.error) return body as T;
  throw new ServerError(body?.error || `The server responded with status ${response.status} without a message.`);
}

function ask<T>(path: string, question: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/json", "x-page": identity };
  return answer<T>(path, { method: "POST", headers, body: JSON.stringify(question), signal: signal ?? null });
}

export async function fetchContents(): Promise<PageContents> {
  const told = await answer<PageContents>("contents");
  identity = told.page_id;
  return told;
}
/** Requests that the server loads the newest checkpoint. */
export const requestReload = (): Promise<ReloadResponse> => ask("reload", {});
export const requestExport = (): Promise<ExportResponse> => ask("export", {});
export const requestDecode = (requested: DecodeRequest, signal?: AbortSignal): Promise<PageExample> => ask("decode", requested, signal);
export const requestWhatIf = (changed: WhatIfRequest, signal?: AbortSignal): Promise<WhatIfResponse> => ask("what-if", changed, signal);
export const requestNeighbors = (nearby: NeighborsRequest, signal?: AbortSignal): Promise<NeighborsResponse> =>
  ask("neighbors", nearby, signal);

/** Whether a newer request replaced this one. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Message of any error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Sends a request after a pause in milliseconds; returns a function that cancels it. */
export function debounceRequest<T>(pause: number, ask: (signal: AbortSignal) => Promise<T>, done: (answer: T) => void, failed: (why: string) => void): () => void {
  const control = new AbortController();
  const wait = setTimeout(() => {
    ask(control.signal).then(done, (error: unknown) => isAborted(error) || failed(errorMessage(error)));
  }, pause);
  return () => {
    clearTimeout(wait);
    control.abort();
  };
}

/** Events of a training: log lines, frames, running state, model card. */
export interface TrainingListeners {
  line: (line: Record<string, unknown>) => void;
  frame: (frame: TrainingFrame) => void;
  running: (running: boolean) => void;
  card: (card: ModelCard) => void;
}

/** Listens to training events from line `since` of the log; returns a function that stops listening. */
export function listenToTraining(since: number, heard: TrainingListeners): () => void {
  const events = new EventSource(`api/training?since=${since}`);
  for (const [name, hear] of Object.entries(heard)) events.addEventListener(name, (event) => hear(JSON.parse(event.data)));
  return () => events.close();
}
