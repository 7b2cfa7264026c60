// The answers of a model in the page equal those of the server, which tests/web_model_references.py writes.
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { decodeArray, toGrid, type NumberArray } from "../src/data/arrays";
import type { DecodeRequest, PageExample, Trace, WhatIfRequest, WhatIfResponse } from "../src/data/contents";
import { createKernel, javascriptKernel, type Kernel } from "../src/model/kernel";
import { withCurrentNames, type StoredModel } from "../src/model/modelFile";
import { mergeCopies } from "../src/model/pointerGenerator";
import { loadPredictor, type ModelPredictor } from "../src/model/predictor";
import { compareWhatIf } from "../src/model/whatIf";

interface Reference {
  model: StoredModel;
  decoded: { request: DecodeRequest; answer: PageExample }[];
  compared: { request: WhatIfRequest; answer: WhatIfResponse }[];
}
const REFERENCES = JSON.parse(readFileSync(new URL("models.json", import.meta.url), "utf8")) as Reference[];
const DIGITS = 4;

function expectClose(actual: NumberArray, expected: NumberArray): void {
  const [values, expectedValues] = [decodeArray(actual), decodeArray(expected)];
  expect(values.length).toBe(expectedValues.length);
  expectedValues.forEach((value, index) => (Number.isFinite(value) ? expect(values[index]).toBeCloseTo(value, DIGITS) : expect(values[index]).toBe(value)));
}

function expectSameTrace(actual: Trace, expected: Trace): void {
  const same = ({ text, source, num_features, unknown, target, output, finished, rank, origin, task, summed_features, unknown_target, forced, forced_attention }: Trace) => ({
    text, source, num_features, unknown, target, output, finished, rank, origin, task, summed_features, unknown_target, forced, forced_attention,
  });
  expect(same(actual)).toEqual(same(expected));
  expect(actual.score).toBeCloseTo(expected.score, DIGITS);
  for (const name of ["nbest_probability", "search_score"] as const) {
    if (expected[name] === null) expect(actual[name]).toBeNull();
    else expect(actual[name]).toBeCloseTo(expected[name], DIGITS);
  }
  expectClose(actual.log_probabilities, expected.log_probabilities);
  expectClose(actual.entropy, expected.entropy);
  if (expected.target.length > 0) expectClose(actual.attention, expected.attention);
  expect(actual.top.map((row) => row.map(([symbol]) => symbol))).toEqual(expected.top.map((row) => row.map(([symbol]) => symbol)));
  expectClose(actual.top.flat().map(([, value]) => value), expected.top.flat().map(([, value]) => value));
}

function expectSameExample(actual: PageExample, expected: PageExample): void {
  expect(actual.traces.length).toBe(expected.traces.length);
  expected.traces.forEach((trace, index) => expectSameTrace(actual.traces[index]!, trace));
  const [tree, expectedTree] = [actual.traces[0]!.search_tree, expected.traces[0]!.search_tree];
  expect(tree === null).toBe(expectedTree === null);
  if (!tree || !expectedTree) return;
  expect([tree.symbols, tree.parents, tree.statuses, tree.leaf]).toEqual([expectedTree.symbols, expectedTree.parents, expectedTree.statuses, expectedTree.leaf]);
  expectClose(tree.scores, expectedTree.scores);
  const weights = ({ attention, attention_rows: rows }: typeof tree) => rows.map((row) => [...toGrid(attention).values.subarray(row * toGrid(attention).columns, (row + 1) * toGrid(attention).columns)]);
  expectClose(weights(tree), weights(expectedTree));
}

describe("withCurrentNames", () => {
  it("gives settings of format 1 their present names", () => {
    for (const { model } of REFERENCES) {
      const { feature_merge: features, ...encoder } = model.settings.encoder;
      const { output_layer_inputs: output, ...decoder } = model.settings.decoder;
      const former = { ...model, settings: { ...model.settings, encoder: { ...encoder, features }, decoder: { ...decoder, output } } };
      expect(withCurrentNames(former as unknown as StoredModel)).toEqual(model);
      expect(withCurrentNames(model)).toEqual(model);
    }
  });
});

describe("mergeCopies", () => {
  it("sums the probabilities of all copies, for any number of symbols", () => {
    const size = 200_000;
    const distribution = new Float32Array(size + 2).fill(Math.log(0.5 / size)).fill(Math.log(0.25), size);
    const merged = mergeCopies(distribution, size);
    expect(merged.length).toBe(size + 1);
    expect(merged.subarray(0, size)).toEqual(distribution.subarray(0, size));
    expect(merged[size]).toBeCloseTo(Math.log(0.5), 6);
  });

  it("changes nothing without copies", () => {
    const distribution = Float32Array.of(-1, -2);
    expect(mergeCopies(distribution, 2)).toBe(distribution);
  });
});

describe.each(["WebAssembly", "JavaScript"])("in %s", (kernelName) => {
  describe.each(REFERENCES.map((reference) => [reference.model.name, reference] as const))("%s", (_, { model, decoded, compared }) => {
    let predictor: ModelPredictor;
    beforeAll(async () => {
      const kernel: Kernel = kernelName === "WebAssembly" ? await createKernel() : javascriptKernel;
      expect(kernel.name).toBe(kernelName);
      predictor = await loadPredictor(kernel, model);
    });

    it.each(decoded.map(({ request, answer }) => [JSON.stringify([request.text, request.prefix, request.forced_attention]), request, answer] as const))("decodes %s", (_name, request, answer) => {
      expectSameExample(predictor.decode(request), answer);
    });

    it.each(compared.map(({ request, answer }) => [JSON.stringify([request.after.text, request.after.prefix]), request, answer] as const))("compares with %s", (_name, request, answer) => {
      const response = compareWhatIf(predictor, request);
      expectSameExample(response.before, answer.before);
      expectSameExample(response.after, answer.after);
      expect(response.compared_output).toBe(answer.compared_output);
      expectSameTrace(response.rescored, answer.rescored);
      expectClose(response.kl_divergence, answer.kl_divergence);
    });
  });
});
