import { expect, test } from "vitest";
import { describeMissingAttention, hasAttention } from "../src/selection/layerWeights";
import { trace } from "./fixtures";

test("an output has attention unless all of its weights are zero", () => {
  expect(hasAttention(trace("xy", "ab"))).toBe(true);
  expect(hasAttention(trace("xy", "ab", [[0, 0], [0, 0]]))).toBe(false);
  expect(hasAttention(trace("", "ab", []))).toBe(true);
});

test("the sentence in place of missing weights quotes the run, which may be called none", () => {
  expect(describeMissingAttention("none")).toBe("Model “none” has no attention.");
  expect(describeMissingAttention(undefined)).toBe("This model has no attention.");
});
