import { expect, test } from "vitest";
import { followReference, describeReference } from "../src/beam/reference";
import { beam } from "./fixtures";

test("the reference is followed along the beam to its last node", () => {
  expect(followReference(beam, ["b"])).toEqual({ path: [1, 3], missingSymbol: null });
  expect(followReference(beam, ["a", "d"])).toEqual({ path: [0, 4], missingSymbol: "⟨end⟩" });
  expect(followReference(beam, ["b", "c"])).toEqual({ path: [1], missingSymbol: "c" });
  expect(followReference(beam, ["x"])).toEqual({ path: [], missingSymbol: "x" });
  expect(followReference({ ...beam, statuses: ["ended", "kept", "kept", "ended", "pruned"] }, ["a"])).toEqual({ path: [0], missingSymbol: null });
  expect(followReference(beam, [])).toEqual({ path: [], missingSymbol: "⟨end⟩" });
});

test("the outcome of the reference is described", () => {
  const describe = (...expected: string[]): string => describeReference(beam, followReference(beam, expected));
  expect(describe("b")).toBe("The expected output (underlined) is in the beam too: log p = −1.500; output: −0.750.");
  const added = { ...beam, leaf: -1 };
  expect(describeReference(added, followReference(added, ["b"]))).toBe("The expected output (underlined) is in the beam too: log p = −1.500; output: not in the beam.");
  expect(describe("a", "d", "x")).toBe("The expected output (underlined) was pruned at step 2 with “d”, log p = −3.500.");
  expect(describe("a", "c", "x")).toBe("The expected output (underlined) was kept at step 2, where the search ended, log p = −0.750.");
  expect(describe("b", "c")).toBe("The expected output (underlined) left the beam at step 2: “c” was not considered.");
  expect(describe("a")).toBe("The expected output (underlined) left the beam at step 2: “⟨end⟩” was not considered.");
  expect(describe("x")).toBe("The expected output left the beam at step 1: “x” was not considered.");
});
