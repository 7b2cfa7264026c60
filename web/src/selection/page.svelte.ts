/** What the page was given, and the part of it that is selected. */
import type { Contents, Frame, Item, ReportDocument, TaskView, Trace, Training } from "../data/contents";
import { FORMAT, REPORT_FORMAT } from "../data/contents";
import { learn, pageView } from "../data/task";
import { contents as fetched } from "../data/service";
import { selection } from "./selection.svelte";

const EMPTY: Contents = {
  format: FORMAT, version: "", title: "Pellucid", tasks: {}, served: false, identity: "", card: null, items: [], total: 0, choice: "",
  corpus: null, training: null, space: null, rivals: [], update: null, awaited: false,
};

/** Two traces are one where they read and wrote the same. */
export const key = (trace: Trace): string => JSON.stringify([trace.source, trace.target]);

class Page {
  contents = $state.raw<Contents>(EMPTY);
  /** The report that the file holds in place of contents. */
  report = $state.raw<ReportDocument | null>(null);
  /** An answer to a source typed by the reader: shown in place of the selected item. */
  live = $state.raw<Item | null>(null);

  /** What was asked about outputs after they came, by what they read and wrote. */
  known = $state.raw<ReadonlyMap<string, Partial<Trace>>>(new Map());

  /** What was heard of a training since the contents came, and whether it goes on. */
  lines = $state.raw<Training["log"]>([]);
  frames = $state.raw<Frame[]>([]);
  heard = $state.raw<boolean | null>(null);
  readonly log = $derived([...(this.contents.training?.log ?? []), ...this.lines]);
  readonly reel = $derived([...(this.contents.training?.frames ?? []), ...this.frames]);
  readonly over = $derived(this.log.some(({ event }) => event === "stopped"));
  readonly training = $derived(!this.over && (this.heard ?? this.contents.training?.running ?? false));

  readonly items: Item[] = $derived(this.contents.items);
  readonly item: Item | null = $derived(this.live ?? this.items[selection.item] ?? null);
  readonly trace: Trace | null = $derived.by(() => {
    const trace = this.item?.traces[selection.output] ?? this.item?.traces[0];
    return trace ? { ...trace, ...this.known.get(key(trace)) } : null;
  });
  /** How its outputs are shown. */
  readonly view: TaskView = $derived(pageView(this.contents));
  readonly served: boolean = $derived(this.contents.served);
}

export const page = new Page();

/** The contents that stand in the file, or, in a served page, those the service gives. */
export async function load(): Promise<Contents> {
  const scripts = document.querySelectorAll('script[type="application/json"]');
  const text = [...scripts].find((each) => each.id === "contents" && each.textContent.trim() !== "")?.textContent;
  const contents = text ? (JSON.parse(text) as Contents | ReportDocument) : await fetched();
  const report = "type" in contents ? contents : null;
  const format = report ? REPORT_FORMAT : FORMAT;
  if (contents.format !== format) {
    throw new Error(`This page reads ${report ? "reports" : "contents"} of format ${format}; these are of format ${contents.format}.`);
  }
  learn(contents.tasks);
  page.report = report;
  return "type" in contents ? { ...EMPTY, title: contents.title, version: contents.version } : contents;
}
