import { expect, test } from "vitest";
import { breadth, cited, ordinals, parts, quoted, shown, shownText, spoken } from "../src/drawing/symbols";

test("what is blank is drawn or named", () => {
  expect(["", " ", "\t", "\n", "\u202e", "\u200f", "\0", "\ufeff"].map(shown)).toEqual([
    "∅", "␣", "⇥", "↵", "RLO", "RLM", "U+0000", "BOM",
  ]);
  expect(parts("a b")).toEqual([
    { text: "a", kind: "plain" }, { text: "␣", kind: "stand-in" }, { text: "b", kind: "plain" },
  ]);
});

test("a combining mark without a letter sits on a dotted circle, one with a letter on its letter", () => {
  expect(shown("\u0301")).toBe("◌\u0301");
  expect(shown("e\u0301")).toBe("e\u0301");
  expect(shown(" \u0301")).toBe("␣◌\u0301");
});

test("no turning control is left in what is shown", () => {
  for (let point = 0x2000; point < 0x2070; point++) expect(shown(`a${String.fromCodePoint(point)}b`)).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
});

test("emoji stay whole, markup stays text", () => {
  expect(shown("👩\u200d🔬")).toBe("👩\u200d🔬");
  expect(shown("</script>")).toBe("</script>");
  expect(shown("<s>")).toBe("<s>");
});

test("words for a screen reader, and texts", () => {
  expect(spoken(" ")).toBe("space");
  expect(shownText("a b\u202ec")).toBe("a b⟨RLO⟩c");
});

test("texts that differ in spaces alone look different, and an empty one is said to be nothing", () => {
  expect(["a b", " a b", "a b ", "a  b", "   ", ""].map(shownText)).toEqual(["a b", "␣a b", "a b␣", "a␣␣b", "␣␣␣", ""]);
  expect(["a b", " ", ""].map(quoted)).toEqual(["“a b”", "“␣”", "nothing"]);
  // What is written leftward does not turn the sentence around it.
  expect([quoted("שלום"), cited("ش"), cited("d͡z"), cited("")]).toEqual(["“\u2068שלום\u2069”", "“\u2068ش\u2069”", "“d͡z”", "“∅”"]);
});

test("repeated symbols are numbered", () => {
  expect(ordinals(["a", "b", "a"])).toEqual([1, null, 2]);
});

test("marks take no room, ideographs much", () => {
  expect(breadth("e\u0301")).toBe(breadth("e"));
  expect(breadth("漢")).toBeGreaterThan(breadth("a"));
});
