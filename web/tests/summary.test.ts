import { describe, expect, it } from "vitest";
import { encodeGrid, gridFromRows } from "../src/data/arrays";
import type { WhatIfResponse } from "../src/data/contents";
import { EMPTY_REQUEST, toggleMask, setAttention } from "../src/selection/request";
import { formatProbability } from "../src/drawing/scales";
import { alignSteps } from "../src/data/steps";
import { formatCandidate, stepChanges, describeWhatIf } from "../src/what-if/summary";
import { example, trace } from "./fixtures";

const requested = { ...EMPTY_REQUEST, text: "abc" };
const vector = (values: number[]) => ({ ...encodeGrid(gridFromRows([values])), shape: [values.length] });

function difference(logs: number[], output = "789"): WhatIfResponse {
  const before = example("abc", "789", null);
  before.traces[0]!.log_probabilities = vector([Math.log(0.9), Math.log(0.98), Math.log(0.5)]);
  const same = { ...trace("789", "abc"), forced_attention: [0, 1, 2], log_probabilities: vector(logs) };
  return { before, after: example("abc", output, null), compared_output: "before", rescored: same, kl_divergence: vector([0, 4, 0]) };
}
const equal = difference([Math.log(0.9), Math.log(0.98), Math.log(0.5)]);
const lower = difference([Math.log(0.9), Math.log(0.03), Math.log(0.5)], "719");

describe("description of a what-if change", () => {
  it("quotes only the changed part of a long source", () => {
    const long = { ...EMPTY_REQUEST, text: "a".repeat(70) };
    const cause = (text: string) => describeWhatIf(long, { ...long, text }, lower).split(" lowers")[0];
    expect(cause(`${"a".repeat(30)}b${"a".repeat(39)}`)).toBe("Replacing “a” by “b” in the source, from character 31 on");
    expect(cause(`${"a".repeat(30)}b${"a".repeat(40)}`)).toBe("Replacing nothing by “b” in the source, from character 31 on");
    expect(cause("a".repeat(69))).toBe("Replacing “a” by nothing in the source, from character 70 on");
  });
  it("names the step, the symbol and both probabilities", () => {
    expect(describeWhatIf(requested, setAttention(requested, 1, [0, 0, 1]), lower)).toBe(
      "Forcing step 2 to attend to position 3 (“c”) lowers p(8) at step 2 from 0.98 to 0.03; the output becomes “719” instead of “789”.",
    );
  });
  it("names the first differing step if an earlier one changed more", () => {
    const second = difference([Math.log(0.2), Math.log(0.4), Math.log(0.5)], "719");
    expect(describeWhatIf(requested, toggleMask(requested, 0), second)).toBe(
      "Masking position 1 (“a”) lowers p(7) at step 1 from 0.90 to 0.20; the output becomes “719” instead of “789” from step 2 on, where p(8) changes from 0.98 to 0.40.",
    );
  });
  it("does not name a step after the first different symbol, whose probability is that along another output", () => {
    const first = difference([Math.log(0.4), Math.log(0.03), Math.log(0.5)], "189");
    expect(describeWhatIf(requested, toggleMask(requested, 0), first)).toBe("Masking position 1 (“a”) lowers p(7) at step 1 from 0.90 to 0.40; the output becomes “189” instead of “789”.");
  });
  it("reports no change, and a change without effect", () => {
    expect(describeWhatIf(requested, requested, equal)).toBe("No change.");
    expect(describeWhatIf(requested, toggleMask(requested, 0), equal)).toBe("Masking position 1 (“a”) has almost no effect: the output stays “789”.");
  });
  it("omits forced attention of steps that no output reached", () => {
    const both = setAttention(setAttention(requested, 1, [0, 0, 1]), 7, [1, 0, 0]);
    expect(describeWhatIf(requested, both, lower)).toBe(describeWhatIf(requested, setAttention(requested, 1, [0, 0, 1]), lower));
  });
  it("joins several causes", () => {
    const both = { ...setAttention(toggleMask(requested, 0), 2, [1, 1, 1]), prefix: ["7"] };
    expect(describeWhatIf(requested, both, equal)).toMatch(/^Masking .*, forcing the prefix “7” and forcing step 3 to attend uniformly/);
  });
  it("pairs the probabilities of each symbol", () => {
    expect(stepChanges(lower)[1]).toMatchObject({ step: 1, oldSymbol: "8", divergence: 4 });
    expect(stepChanges(lower)[1]!.symbols[0]!.after.probability).toBeCloseTo(0.03, 5);
  });
  it("gives the probabilities of the symbols of both outputs, or a bound for one that is not stored", () => {
    const candidates = (...top: [string, number][]) => top.map(([symbol, p]): [string, number] => [symbol, Math.log(p)]);
    const changed = difference([Math.log(0.9), Math.log(0.09), Math.log(0.5)], "759");
    changed.before.traces[0]!.top[1] = candidates(["8", 0.98], ["1", 0.01]);
    changed.rescored = { ...changed.rescored, top: [[], candidates(["5", 0.6], ["8", 0.09]), []] };
    const rounded = stepChanges(changed)[1]!.symbols.map(({ symbol, before, after }) => `${symbol} ${formatCandidate(before)} ${formatCandidate(after)}`);
    // The new symbol has the probability along the new output (in this fixture exp(−0.2)).
    expect(rounded).toEqual(["8 0.98 0.09", "5 < 0.01 0.82"]);
    expect(stepChanges(changed)[0]!.symbols.map(({ symbol }) => symbol)).toEqual(["7"]);
  });
  it("ends with the new output, whose end has its probability", () => {
    const targets = (output: string) => [...output, "⟨end⟩"];
    const changed = (output: string, logs: number[]): WhatIfResponse => {
      const [before, after] = [example("abc", "125", null), example("abc", output, null)];
      before.traces[0] = { ...before.traces[0]!, target: targets("125"), log_probabilities: vector([0.9, 0.9, 0.9, 0.95].map(Math.log)) };
      after.traces[0] = { ...after.traces[0]!, target: targets(output), log_probabilities: vector(logs.map(Math.log)), top: targets(output).map(() => []) };
      const rescored = { ...before.traces[0], log_probabilities: vector([0.9, 0.05, 0.2, 0.3].map(Math.log)) };
      return { before, after, compared_output: "before", rescored, kl_divergence: vector([0, 3, 1, 1]) };
    };
    const rowsOf = (response: WhatIfResponse) => stepChanges(response).map(({ step, symbols }) => [step + 1, ...symbols.map(({ symbol, before, after }) => `${symbol} ${formatCandidate(before)} → ${formatCandidate(after)}`)].join("; "));
    expect(rowsOf(changed("1", [0.9, 0.41]))).toEqual(["1; 1 0.90 → 0.90", "2; 2 0.90 → 0.05; ⟨end⟩ < 0.90 → 0.41"]);
    // Beyond the original output, its end included, there is no probability before.
    expect(rowsOf(changed("1255", [0.9, 0.8, 0.7, 0.6, 0.5])).slice(3)).toEqual(["4; ⟨end⟩ 0.95 → 0.30; 5 < 1 → 0.60", "5; ⟨end⟩ – → 0.50"]);
  });
  it("describes the output after a forced prefix with its own probability", () => {
    const forced = { ...difference([Math.log(0.9), Math.log(0.02), Math.log(0.6), Math.log(0.3)], "7155"), compared_output: "after" as const };
    forced.rescored = { ...forced.rescored, ...trace("7155", "abc"), log_probabilities: forced.rescored.log_probabilities };
    forced.kl_divergence = vector([0, 0, 2.5]);
    const all = stepChanges(forced);
    expect(all.map(({ oldSymbol, newSymbol, probabilityChange }) => [oldSymbol, newSymbol, probabilityChange])).toEqual([["7", "7", 0], ["8", "1", null], ["9", "5", null], [undefined, "5", null]]);
    expect(all[1]!.symbols.at(-1)!.after.probability).toBeCloseTo(0.02, 5);
    expect(all[3]).toMatchObject({ step: 3, symbols: [{ symbol: "5", before: null }], divergence: null });
    expect(describeWhatIf(requested, { ...requested, prefix: ["7", "1"] }, forced)).toBe(
      "Forcing the prefix “7 1” outputs “1” (p = 0.02) instead of “8” (p = 0.98) at step 2, with the largest KL divergence at step 3 (2.50 bits); the output becomes “7155” instead of “789”.",
    );
  });
  it("formats probabilities", () => {
    expect([0, 1, 0.98, 0.9999, 0.0301, 0.0004].map(formatProbability)).toEqual(["0", "1", "0.98", "0.9999", "0.03", "0.0004"]);
    expect([0.99997, 0.9999999, 0.998].map(formatProbability)).toEqual(["0.99997", "0.9999999", "0.9980"]);
  });
});

describe("alignment of two outputs", () => {
  it("pairs steps by minimum edits, not by index", () => {
    expect(alignSteps([..."abc"], [..."xabc"])).toEqual([[null, 0], [0, 1], [1, 2], [2, 3]]);
    expect(alignSteps([..."abc"], [..."ac"])).toEqual([[0, 0], [1, null], [2, 1]]);
    expect(alignSteps([..."bexr"], [..."bbxxr"])).toEqual([[0, 0], [1, 1], [2, 2], [null, 3], [3, 4]]);
    expect(alignSteps([], ["a"])).toEqual([[null, 0]]);
    expect(alignSteps([..."ab"], [..."ax"])).toEqual([[0, 0], [1, 1]]);
  });
});
