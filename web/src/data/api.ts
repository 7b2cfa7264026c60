/** Requests to the local server. Every error is a sentence. */
import type { DecodeRequest, ModelCard, WhatIfRequest, PageContents, WhatIfResponse, TrainingFrame, PageExample, ExportResponse, NeighborsRequest, NeighborsResponse, ReloadResponse } from "./contents";

/** Error with a message for the user. */
export class ServerError extends Error {}

/** Model in the page, which answers requests in place of the server. */
export interface LocalModel {
  decode(request: DecodeRequest): PageExample;
  compareWhatIf(request: WhatIfRequest): WhatIfResponse;
}
let localModel: LocalModel | null = null;

/** Answers requests by a model in the page from now on. */
export function useLocalModel(model: LocalModel): void {
  localModel = model;
}
export const hasLocalModel = (): boolean => localModel !== null;

/** Identity of the shown contents; the server refuses requests of other pages. */
let identity = "";

async function fetchJson<T>(path: string, init?: RequestInit): Promise<T> {
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

function post<T>(path: string, payload: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/json", "x-page": identity };
  return fetchJson<T>(path, { method: "POST", headers, body: JSON.stringify(payload), signal: signal ?? null });
}

export async function fetchContents(): Promise<PageContents> {
  const contents = await fetchJson<PageContents>("contents");
  identity = contents.page_id;
  return contents;
}
/** Asks the server to load the newest checkpoint. */
export const requestReload = (): Promise<ReloadResponse> => post("reload", {});
export const requestExport = (): Promise<ExportResponse> => post("export", {});
export const requestDecode = async (request: DecodeRequest, signal?: AbortSignal): Promise<PageExample> => localModel?.decode(request) ?? post("decode", request, signal);
export const requestWhatIf = async (request: WhatIfRequest, signal?: AbortSignal): Promise<WhatIfResponse> => localModel?.compareWhatIf(request) ?? post("what-if", request, signal);
export const requestNeighbors = (request: NeighborsRequest, signal?: AbortSignal): Promise<NeighborsResponse> =>
  post("neighbors", request, signal);

/** Whether a newer request replaced this one. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Message of any error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Sends a request after a pause in milliseconds, which a model in the page does not need; returns a function that cancels it. */
export function debounceRequest<T>(pause: number, send: (signal: AbortSignal) => Promise<T>, done: (response: T) => void, failed: (message: string) => void): () => void {
  const control = new AbortController();
  const wait = setTimeout(() => {
    send(control.signal).then(done, (error: unknown) => isAborted(error) || failed(errorMessage(error)));
  }, localModel ? 0 : pause);
  return () => {
    clearTimeout(wait);
    control.abort();
  };
}

/** Events of a training: log lines, frames, running state, model card, and the message of an error that ends them. */
export interface TrainingListeners {
  line: (line: Record<string, unknown>) => void;
  frame: (frame: TrainingFrame) => void;
  running: (running: boolean) => void;
  card: (card: ModelCard) => void;
  failed: (message: string) => void;
}

/** Listens to training events of the shown contents from line `since` of the log; returns a function that stops listening. */
export function listenToTraining(since: number, listeners: TrainingListeners): () => void {
  const events = new EventSource(`api/training?since=${since}&page=${identity}`);
  for (const [name, listener] of Object.entries(listeners)) events.addEventListener(name, (event) => listener(JSON.parse(event.data)));
  return () => events.close();
}
