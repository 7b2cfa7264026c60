import { describe, expect, it } from "vitest";
import { filterRows, coverageDeviation, NO_FILTER, parsePattern, describeConfusionShare, describeConfusion, describePlace, describeRuns, describeShownErrors, repeatedConfusions, exampleRow, outputSegments, describeResult, explainError, wrongSteps } from "../src/selection/exampleRows";
import type { ConfusionCount, EditOperation } from "../src/data/contents";
import { example, trace, VIEWS } from "./fixtures";

const edits: EditOperation[] = [
  { kind: "same", step: 0, expected: "x" },
  { kind: "deletion", step: null, expected: "y" },
  { kind: "substitution", step: 1, expected: "z" },
  { kind: "insertion", step: 2, expected: null },
  { kind: "deletion", step: null, expected: "!" },
];
const examples = [example("abc", "xyz", "xyz"), example("abcd", "xwv", "xyz!", edits), example("b", "q", null)];
const rows = examples.map(exampleRow);
const indices = (list: { index: number }[]) => list.map(({ index }) => index);

it("splits an output into correct and wrong segments", () => {
  expect(outputSegments(examples[1]!)).toEqual([{ text: "x", wrong: false }, { text: "–wv–", wrong: true }]);
  expect(outputSegments(examples[1]!, 2).at(-1)).toEqual({ text: "–w", wrong: true });
  const short = example("ab", "x", "xy", [edits[0]!, edits[1]!]);
  expect(outputSegments(short)).toEqual([{ text: "x", wrong: false }, { text: "–", wrong: true }]);
  expect(outputSegments(example("ab", "", "x", [edits[1]!]))).toEqual([]);
});

describe("the list of examples", () => {
  it("keeps the file order by default", () => {
    expect(indices(filterRows(rows, NO_FILTER, "file", false))).toEqual([0, 1, 2]);
    expect(indices(filterRows(rows, NO_FILTER, "file", true))).toEqual([2, 1, 0]);
  });
  it("sorts by a column, ties in file order", () => {
    expect(indices(filterRows(rows, NO_FILTER, "errors", true))).toEqual([1, 0, 2]);
    expect(indices(filterRows(rows, NO_FILTER, "length", false))).toEqual([2, 0, 1]);
  });
  it("sorts by confidence, rows without one last in ascending order", () => {
    const confidences = [0.9, null, 0.2].map((confidence, index) => exampleRow({ ...examples[0]!, traces: [{ ...trace("x", "a"), confidence }] }, index));
    expect(indices(filterRows([...confidences, { ...confidences[1]!, index: 3 }], NO_FILTER, "confidence", false))).toEqual([2, 0, 1, 3]);
  });
  it("lists wrong outputs first, the least confident of them first", () => {
    const outputs = [["x", "x", 0.5], ["y", "x", 0.9], ["x", "x", 0.3], ["z", "x", 0.2], ["z", "x", null]] as const;
    const all = outputs.map(([output, reference, confidence], index) => exampleRow({ ...example("a", output, reference), traces: [{ ...trace(output, "a"), confidence }] }, index));
    // Without a confidence, the probability of the output counts: exp(−0.1) = 0.905.
    expect(indices(filterRows(all, NO_FILTER, "wrong", false))).toEqual([3, 1, 4, 2, 0]);
  });
  it("names the runs that are correct on an example", () => {
    const describe = (...exacts: (boolean | null)[]) => describeRuns(exacts.map((exact, index) => ["abc"[index]!, exact]));
    expect([describe(true, false), describe(false, true), describe(true, true), describe(false, false), describe(null, null), describe(true, true, false), describe(true, true, true)]).toEqual(["✓ a · ✗ b", "✓ b · ✗ a", "✓ both runs", "✗ both runs", "", "✓ a, b · ✗ c", "✓ all runs"]);
  });
  it("names the line and the id of an example, which the filter finds", () => {
    expect([{ line: 12, row_id: "P-17" }, { line: 12, row_id: "" }, { line: null, row_id: "" }].map((place) => describePlace({ ...examples[0]!, ...place }))).toEqual(["line 12, id P-17", "line 12", ""]);
    expect(filterRows([exampleRow({ ...examples[0]!, row_id: "P-17" }, 0)], { ...NO_FILTER, pattern: "^P-17$" }, "file", false)).toHaveLength(1);
  });
  it("filters by pattern, correctness, length and indices", () => {
    expect(indices(filterRows(rows, { ...NO_FILTER, pattern: "^abc$" }, "file", false))).toEqual([0]);
    expect(indices(filterRows(rows, { ...NO_FILTER, pattern: "!" }, "file", false))).toEqual([1]);
    expect(indices(filterRows(rows, { ...NO_FILTER, correctness: "wrong" }, "file", false))).toEqual([1]);
    expect(indices(filterRows(rows, { ...NO_FILTER, minimum: 3, maximum: 3 }, "file", false))).toEqual([0]);
    expect(indices(filterRows(rows, { ...NO_FILTER, only: { indices: [2], reason: "" } }, "file", false))).toEqual([2]);
  });
  it("reports an invalid expression and ignores it", () => {
    expect(parsePattern("a(")).toMatch(/a\(/);
    expect(filterRows(rows, { ...NO_FILTER, pattern: "a(" }, "file", false)).toHaveLength(3);
  });
});

describe("scores of an example", () => {
  it("has zero coverage deviation if each position has a total weight of one", () => {
    expect(coverageDeviation(Float32Array.of(1, 0, 0, 1), 2)).toBe(0);
    expect(coverageDeviation(Float32Array.of(1, 0, 1, 0), 2)).toBeCloseTo(Math.log(2), 6);
    expect(coverageDeviation(Float32Array.of(1, 0, 0.5, 0.5), 2)).toBeCloseTo(Math.log(1 + 1 / 64), 6);
    expect(coverageDeviation(new Float32Array(), 0)).toBe(0);
  });
  it("is the mean loss in nats", () => expect(rows[0]!.loss).toBeCloseTo(0.2, 6));
});

describe("errors of an example", () => {
  it("lists wrong steps and missing symbols", () => {
    expect(wrongSteps(edits)).toEqual({ steps: [1, 2], missed: [[1, "y"], [3, "!"]] });
  });
  it("finds confusions that occur more than once in the file", () => {
    const all = [["z", "w", 9], [null, "v", 2], ["y", null, 1], ["!", null, 4], ["q", "w", 7]].map(([expected, predicted, count]) => ({ expected, predicted, count, num_expected: 12, example_indices: [1] })) as ConfusionCount[];
    const repeated = repeatedConfusions(examples[1]!, examples[1]!.traces[0]!, all);
    expect(repeated.map((each) => describeConfusion(each, VIEWS.transduce!))).toEqual(["“w” instead of “z”: 9", "“v” instead of nothing: 2", "nothing instead of “!”: 4"]);
    expect(repeated.map((each) => describeShownErrors(each, examples))).toEqual([1, 1, 1].map((times) => `, ${times} of them shown`));
    expect(describeShownErrors({ ...repeated[0]!, count: 1 }, examples)).toBe("");
    const twice = { expected: "y", predicted: null, count: 2, num_expected: 12, example_indices: [0] };
    const missed = { ...examples[1]!, edits: [edits[1]!, edits[1]!] };
    expect(describeShownErrors(twice, [missed])).toBe(", in 1 example");
    expect(describeShownErrors({ ...twice, count: 5 }, [missed])).toBe(", 2 of them shown, in 1 example");
    expect(describeShownErrors({ ...repeated[0]!, example_indices: [] }, examples)).toBe(", none of them shown");
    expect(describeConfusionShare(repeated[0]!, examples, VIEWS.transduce!)).toBe("“w” instead of “z”: 9 of 12, 1 of them shown");
    expect(describeConfusionShare({ ...repeated[1]!, count: 1 }, examples, VIEWS.transduce!)).toBe("“v” instead of nothing: 1");
    expect(repeatedConfusions(examples[0]!, examples[0]!.traces[0]!, all)).toEqual([]);
    expect(repeatedConfusions(examples[1]!, examples[1]!.traces[0]!, [])).toEqual([]);
  });
  it("describes the errors", () => {
    expect(describeResult(examples[0]!, ["x"])).toMatch(/^Correct/);
    expect(describeResult(examples[2]!, ["q"])).toMatch(/No reference/);
    expect(describeResult(examples[1]!, ["x", "w", "v"])).toBe(
      "Wrong: “y” is missing before step 2; step 2: “w” instead of “z”; step 3: extra “v” before “!”; and 1 more.",
    );
  });
});

describe("explanation of the first error", () => {
  const same = (written: number, expected: string): EditOperation => ({ kind: "same", step: written, expected });
  const extra = (written: number): EditOperation => ({ kind: "insertion", step: written, expected: null });
  const missing = (expected: string): EditOperation => ({ kind: "deletion", step: null, expected });
  const describeErrors = (output: string, reference: string, of: EditOperation[]) => {
    const wrongExample = example("abc", output, reference, of);
    const target = [...output, "⟨end⟩"];
    const traceWithEnd = { ...trace(`${output}$`, "abc"), target, top: target.map((): [string, number][] => [["q", -1], ["x", -2], ["⟨end⟩", -3]]) };
    return [describeResult(wrongExample, target), explainError(wrongExample, traceWithEnd)[1]];
  };
  const rows: [string, string, string, EditOperation[], string, string][] = [
    ["extra first", "qxy", "xy", [extra(0), same(1, "x"), same(2, "y")], "step 1: extra “q” before “x”", "The expected symbol “x” has p = 0.14, rank 2."],
    ["extra last", "xyq", "xy", [same(0, "x"), same(1, "y"), extra(2)], "step 3: extra “q” before the end", "The expected symbol “⟨end⟩” has p = 0.05, rank 3."],
    ["repeated", "xxy", "xy", [same(0, "x"), extra(1), same(2, "y")], "step 2: extra “x” before “y”", "The expected symbol “y” is not among the 3 most probable."],
    ["missing first", "y", "xy", [missing("x"), same(0, "y")], "“x” is missing before step 1", "The expected symbol “x” has p = 0.14, rank 2."],
    ["missing last", "x", "xy", [same(0, "x"), missing("y")], "“y” is missing at the end", "The expected symbol “y” is not among the 3 most probable."],
    ["wrong first", "qy", "xy", [{ kind: "substitution", step: 0, expected: "x" }, same(1, "y")], "step 1: “q” instead of “x”", "The expected symbol “x” has p = 0.14, rank 2."],
    ["wrong last", "xq", "xy", [same(0, "x"), { kind: "substitution", step: 1, expected: "y" }], "step 2: “q” instead of “y”", "The expected symbol “y” is not among the 3 most probable."],
  ];
  it("names positions that share the weight, and calls other attention diffuse", () => {
    const wrong: EditOperation[] = [{ kind: "substitution", step: 0, expected: "x" }];
    const [source, rest] = ["ab".repeat(50), Array.from({ length: 94 }, () => 0.04 / 94)];
    const reading = (weights: number[]) => explainError(example(source, "q", "x", wrong), trace("q", source, [weights])).at(-1);
    expect(reading([0.19, 0.15, 0.15, 0.16, 0.17, 0.14, ...rest])).toBe(
      "Attention at several positions: position 1, “a” (19 %); position 5, “a” (17 %); position 4, “b” (16 %); position 2, “b” (15 %); position 3, “a” (15 %); position 6, “b” (14 %).",
    );
    expect(reading([0.15, ...Array.from({ length: 99 }, () => 0.85 / 99)])).toBe("Diffuse attention: maximum 15 % at position 1, “a”, 15 times the uniform weight.");
  });
  it.each(rows)("%s", (_, output, reference, of, description, reason) => {
    expect(describeErrors(output, reference, of)).toEqual([`Wrong: ${description}.`, reason]);
  });
});
