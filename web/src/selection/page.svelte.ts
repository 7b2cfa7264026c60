/** Contents of the page, and the selected part of them. */
import type { PageContents, TrainingFrame, PageExample, ReportDocument, TaskView, Trace, TrainingHistory } from "../data/contents";
import { FORMAT, REPORT_FORMAT } from "../data/contents";
import { registerTaskViews, pageView } from "../data/taskView";
import { fetchContents, hasLocalModel } from "../data/api";
import { selection } from "./selection.svelte";

export const EMPTY: PageContents = {
  format: FORMAT, version: "", title: "Pellucid", tasks: {}, served: false, page_id: "", card: null, examples: [], num_examples: 0, selection_note: "",
  corpus: null, training: null, state_space: null, compared_runs: [], update: null, awaiting_model: false,
};

/** Key of a trace: traces with the same source and output are equal. */
export const traceKey = (trace: Trace): string => JSON.stringify([trace.source, trace.target]);

class Page {
  contents = $state.raw<PageContents>(EMPTY);
  /** Report, in place of contents. */
  report = $state.raw<ReportDocument | null>(null);
  /** Output of a typed source, shown in place of the selected example. */
  typedExample = $state.raw<PageExample | null>(null);

  /** Details of outputs that were requested later, by trace key. */
  requestedDetails = $state.raw<ReadonlyMap<string, Partial<Trace>>>(new Map());

  /** Training events since the contents were loaded. */
  newLogLines = $state.raw<TrainingHistory["log"]>([]);
  newFrames = $state.raw<TrainingFrame[]>([]);
  /** Whether the server reports a running training; null: no report. */
  reportedRunning = $state.raw<boolean | null>(null);
  /** Error that ended the training events; empty: none. */
  streamError = $state.raw("");
  readonly log = $derived([...(this.contents.training?.log ?? []), ...this.newLogLines]);
  readonly allFrames = $derived([...(this.contents.training?.frames ?? []), ...this.newFrames]);
  readonly isFinished = $derived(this.log.some(({ event }) => event === "stopped"));
  readonly isTraining = $derived(!this.isFinished && (this.reportedRunning ?? this.contents.training?.running ?? false));

  readonly examples: PageExample[] = $derived(this.contents.examples);
  readonly example: PageExample | null = $derived(this.typedExample ?? this.examples[selection.example] ?? null);
  readonly trace: Trace | null = $derived.by(() => {
    const trace = this.example?.traces[selection.output] ?? this.example?.traces[0];
    return trace ? { ...trace, ...this.requestedDetails.get(traceKey(trace)) } : null;
  });
  /** Display of the outputs. */
  readonly view: TaskView = $derived(pageView(this.contents));
  /** Whether requests are answered, by the server or by a model in the page. */
  readonly served: boolean = $derived(this.contents.served);
  /** Whether attributions can be requested. */
  readonly canAttribute: boolean = $derived(this.contents.served && !hasLocalModel());
}

export const page = new Page();

/** Loads the contents embedded in the file, else from the server. */
export async function loadContents(): Promise<PageContents> {
  const scripts = document.querySelectorAll('script[type="application/json"]');
  const text = [...scripts].find((each) => each.id === "contents" && each.textContent.trim() !== "")?.textContent;
  const contents = text ? (JSON.parse(text) as PageContents | ReportDocument) : await fetchContents();
  const report = "type" in contents ? contents : null;
  const format = report ? REPORT_FORMAT : FORMAT;
  if (contents.format !== format) {
    throw new Error(`This page reads ${report ? "reports" : "contents"} of format ${format}; these are of format ${contents.format}.`);
  }
  registerTaskViews(contents.tasks);
  page.report = report;
  return "type" in contents ? { ...EMPTY, title: contents.title, version: contents.version } : contents;
}
