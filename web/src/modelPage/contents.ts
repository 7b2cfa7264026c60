/** Models of the page, and contents computed with them. */
import type { LocalModel } from "../data/api";
import { FORMAT, type DecodeRequest, type ModelCard, type PageContents, type TaskView } from "../data/contents";
import { registerTaskViews } from "../data/taskView";
import type { Kernel } from "../model/kernel";
import { MODEL_FORMAT, withCurrentNames, type StoredModel } from "../model/modelFile";
import { loadPredictor, type ModelPredictor } from "../model/predictor";
import { compareWhatIf } from "../model/whatIf";
import { EMPTY } from "../selection/page.svelte";
import { EMPTY_REQUEST } from "../selection/request";
import { decodingTime } from "./decodingTime.svelte";

/** Data of the page, as pellucid/export/web_page.py writes it. */
export interface ModelPage {
  readonly format: number;
  readonly version: string;
  readonly title: string;
  readonly note: string;
  readonly tasks: Record<string, TaskView>;
  /** First source. */
  readonly text: string;
  readonly features: string[];
  readonly models: readonly StoredModel[];
  /** Description of each model. */
  readonly cards: readonly ModelCard[];
}

/** Loads the models of the page. Throws if there are none, or if they are of another format. */
export async function loadModelPage(json: string, kernel: Kernel): Promise<{ contents: PageContents; models: LocalModel }> {
  if (json.trim() === "") throw new Error("This page has no model. pellucid export RUN --html FILE writes a page with one.");
  const stored = JSON.parse(json) as ModelPage;
  if (stored.format !== MODEL_FORMAT && stored.format !== 1) throw new Error(`This page reads models of the formats 1 and ${MODEL_FORMAT}; these are of format ${stored.format}.`);
  const data = stored.format === 1 ? { ...stored, models: stored.models.map(withCurrentNames) } : stored;
  const predictors = await Promise.all(data.models.map((model) => loadPredictor(kernel, model)));
  registerTaskViews(data.tasks);
  const models = localModels(predictors, kernel);
  return { contents: firstContents(data, models), models };
}

/** Models that answer the requests of the page. */
function localModels(predictors: readonly ModelPredictor[], kernel: Kernel): LocalModel {
  const measured = <T>(answer: () => T): T => {
    const start = performance.now();
    const result = answer();
    decodingTime.note(performance.now() - start, kernel.name);
    return result;
  };
  return {
    decode: (request) => measured(() => predictors[request.run]!.decode(request)),
    compareWhatIf: (request) => measured(() => compareWhatIf(predictors[request.before.run]!, request)),
  };
}

/** Contents of the page: the first source with its outputs by all models. */
function firstContents(data: ModelPage, models: LocalModel): PageContents {
  const examples = data.models.map(({ settings: { search } }, run) => {
    const request: DecodeRequest = { ...EMPTY_REQUEST, text: data.text, features: data.features, beam_size: search.beam_size, num_outputs: search.beam_size, search_tree: true, run };
    return [models.decode(request)];
  });
  const [first, ...others] = data.cards.map((card, index) => ({ card, examples: examples[index]! }));
  return {
    ...EMPTY,
    format: FORMAT,
    version: data.version,
    title: data.title,
    tasks: data.tasks,
    served: true,
    card: first!.card,
    examples: first!.examples,
    num_examples: 1,
    selection_note: data.note,
    compared_runs: others.map((each) => ({ ...each, outcomes: null, num_differing: null, scores: [], positions: [], lengths: [], log: [] })),
  };
}
