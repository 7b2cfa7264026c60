import { describe, expect, it } from "vitest";
import { block, gridOf } from "../src/data/blocks";
import type { Difference } from "../src/data/contents";
import { BLANK, masked, painted } from "../src/selection/question";
import { probability } from "../src/drawing/scales";
import { paired } from "../src/data/steps";
import { changes, numbered, sentence } from "../src/what-if/sentence";
import { item, trace } from "./made";

const asked = { ...BLANK, text: "abc" };
const vector = (values: number[]) => ({ ...block(gridOf([values])), shape: [values.length] });

function difference(logs: number[], output = "789"): Difference {
  const before = item("abc", "789", null);
  before.traces[0]!.log_probabilities = vector([Math.log(0.9), Math.log(0.98), Math.log(0.5)]);
  const same = { ...trace("789", "abc"), painted: [0, 1, 2], log_probabilities: vector(logs) };
  return { before, after: item("abc", output, null), along: "before", same, divergence: vector([0, 4, 0]) };
}
const equal = difference([Math.log(0.9), Math.log(0.98), Math.log(0.5)]);
const lower = difference([Math.log(0.9), Math.log(0.03), Math.log(0.5)], "719");

describe("a what-if in a sentence", () => {
  it("quotes of a long source what is no longer as it was", () => {
    const long = { ...BLANK, text: "a".repeat(70) };
    const cause = (text: string) => sentence(long, { ...long, text }, lower).split(" lowers")[0];
    expect(cause(`${"a".repeat(30)}b${"a".repeat(39)}`)).toBe("Reading “b” instead of “a” from letter 31 on");
    expect(cause(`${"a".repeat(30)}b${"a".repeat(40)}`)).toBe("Reading “b” instead of nothing from letter 31 on");
    expect(cause("a".repeat(69))).toBe("Reading nothing instead of “a” from letter 70 on");
  });
  it("names the step, the symbol and both probabilities", () => {
    expect(sentence(asked, painted(asked, 1, [0, 0, 1]), lower)).toBe(
      "Forcing step 2 to attend to position 3 (“c”) lowers p(8) at step 2 from 0.98 to 0.03; the output becomes “719” instead of “789”.",
    );
  });
  it("names the step from which the outputs differ where another one moved more", () => {
    const first = difference([Math.log(0.4), Math.log(0.03), Math.log(0.5)], "189");
    expect(sentence(asked, masked(asked, 0), first)).toBe(
      "Hiding position 1 (“a”) lowers p(8) at step 2 from 0.98 to 0.03; the output becomes “189” instead of “789” from step 1 on, where p(7) goes from 0.90 to 0.40.",
    );
  });
  it("says when nothing was changed, and when a change changed nothing", () => {
    expect(sentence(asked, asked, equal)).toBe("Nothing was changed, so nothing changes.");
    expect(sentence(asked, masked(asked, 0), equal)).toBe("Hiding position 1 (“a”) changes next to nothing: the output stays “789”.");
  });
  it("leaves out attention given to steps that no output came to", () => {
    const both = painted(painted(asked, 1, [0, 0, 1]), 7, [1, 0, 0]);
    expect(sentence(asked, both, lower)).toBe(sentence(asked, painted(asked, 1, [0, 0, 1]), lower));
  });
  it("joins several causes", () => {
    const both = { ...painted(masked(asked, 0), 2, [1, 1, 1]), prefix: ["7"] };
    expect(sentence(asked, both, equal)).toMatch(/^Hiding .*, forcing the output to begin with “7” and forcing step 3 to attend uniformly/);
  });
  it("pairs the probabilities of each symbol", () => {
    expect(changes(lower)[1]).toMatchObject({ step: 1, symbol: "8", divergence: 4 });
    expect(changes(lower)[1]!.after).toBeCloseTo(0.03, 5);
  });
  it("tells what is written after a forced beginning, with its own probability", () => {
    const forced = { ...difference([Math.log(0.9), Math.log(0.02), Math.log(0.6), Math.log(0.3)], "7155"), along: "after" as const };
    forced.same = { ...forced.same, ...trace("7155", "abc"), log_probabilities: forced.same.log_probabilities };
    forced.divergence = vector([0, 0, 2.5]);
    const all = changes(forced);
    expect(all.map(({ symbol, now, move }) => [symbol, now, move])).toEqual([["7", "7", 0], ["8", "1", null], ["9", "5", null], [undefined, "5", null]]);
    expect(all[1]!.after).toBeCloseTo(0.02, 5);
    expect(all[3]).toMatchObject({ step: null, before: null, divergence: null });
    expect(numbered(all[3]!)).toBe(4);
    expect(sentence(asked, { ...asked, prefix: ["7", "1"] }, forced)).toBe(
      "Forcing the output to begin with “7 1” writes “1” (p = 0.02) instead of “8” (p = 0.98) at step 2 and moves the distribution of step 3 most (by 2.50 bits); the output becomes “7155” instead of “789”.",
    );
  });
  it("writes probabilities shortly", () => {
    expect([0, 1, 0.98, 0.9999, 0.0301, 0.0004].map(probability)).toEqual(["0", "1", "0.98", "0.9999", "0.03", "0.0004"]);
    expect([0.99997, 0.9999999, 0.998].map(probability)).toEqual(["0.99997", "0.9999999", "0.9980"]);
  });
});

describe("two outputs side by side", () => {
  it("pairs by the fewest edits, not by place", () => {
    expect(paired([..."abc"], [..."xabc"])).toEqual([[null, 0], [0, 1], [1, 2], [2, 3]]);
    expect(paired([..."abc"], [..."ac"])).toEqual([[0, 0], [1, null], [2, 1]]);
    expect(paired([..."bexr"], [..."bbxxr"])).toEqual([[0, 0], [1, 1], [2, 2], [null, 3], [3, 4]]);
    expect(paired([], ["a"])).toEqual([[null, 0]]);
    expect(paired([..."ab"], [..."ax"])).toEqual([[0, 0], [1, 1]]);
  });
});
