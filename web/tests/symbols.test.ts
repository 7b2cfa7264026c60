import { expect, test } from "vitest";
import { isolate, textDirection, withoutIsolates, describeUnknown, textWidth, quoteSymbol, repeatNumbers, symbolParts, quoteText, visibleSymbol, visibleText, spokenSymbol } from "../src/drawing/symbols";

test("blank symbols are drawn or named", () => {
  expect(["", " ", "\t", "\n", "\u202e", "\u200f", "\0", "\ufeff"].map(visibleSymbol)).toEqual([
    "∅", "␣", "⇥", "↵", "RLO", "RLM", "U+0000", "BOM",
  ]);
  expect(symbolParts("a b")).toEqual([
    { text: "a", kind: "plain" }, { text: "␣", kind: "stand-in" }, { text: "b", kind: "plain" },
  ]);
});

test("a combining mark without a base letter has a dotted circle", () => {
  expect(visibleSymbol("\u0301")).toBe("◌\u0301");
  expect(visibleSymbol("e\u0301")).toBe("e\u0301");
  expect(visibleSymbol(" \u0301")).toBe("␣◌\u0301");
});

test("visible symbols contain no bidirectional controls", () => {
  for (let point = 0x2000; point < 0x2070; point++) expect(visibleSymbol(`a${String.fromCodePoint(point)}b`)).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
});

test("emoji sequences are not split, markup stays text", () => {
  expect(visibleSymbol("👩\u200d🔬")).toBe("👩\u200d🔬");
  expect(visibleSymbol("</script>")).toBe("</script>");
  expect(visibleSymbol("<s>")).toBe("<s>");
});

test("spoken symbols and visible texts", () => {
  expect(spokenSymbol(" ")).toBe("space");
  expect(visibleText("a b\u202ec")).toBe("a b⟨RLO⟩c");
});

test("texts that differ only in spaces look different, and an empty text is quoted as nothing", () => {
  expect(["a b", " a b", "a b ", "a  b", "   ", ""].map(visibleText)).toEqual(["a b", "␣a b", "a b␣", "a␣␣b", "␣␣␣", ""]);
  expect(["a b", " ", ""].map(quoteText)).toEqual(["“a b”", "“␣”", "nothing"]);
  // Right-to-left text does not change the direction of the sentence around it.
  expect([quoteText("שלום"), quoteSymbol("ش"), quoteSymbol("d͡z"), quoteSymbol("")]).toEqual(["“\u2068שלום\u2069”", "“\u2068ش\u2069”", "“d͡z”", "“∅”"]);
});

test("repeated symbols are numbered", () => {
  expect(repeatNumbers(["a", "b", "a"])).toEqual([1, null, 2]);
});

test("combining marks have no width, ideographs are wide", () => {
  expect(textWidth("e\u0301")).toBe(textWidth("e"));
  expect(textWidth("漢")).toBeGreaterThan(textWidth("a"));
});

test("unknown symbols are named in a sentence, each once, up to a maximum", () => {
  expect(describeUnknown([])).toBe("");
  expect(describeUnknown(["q", "q"])).toMatch(/^The model does not know “q” \(marked/);
  expect(describeUnknown(["q", "z", " "], "none")).toMatch(/^Model “none” does not know “q”, “z” and “␣” \(/);
  expect(describeUnknown([..."abcdefghijk"])).toMatch(/“h” and 3 more symbols/);
});

test("lists of symbols have the direction of their first letter", () => {
  expect([["1", "א", "b"], ["a", "א"], ["⟨end⟩"], ["⟨unk⟩", "ش"], [], ["\u{1e900}"]].map(textDirection)).toEqual(["rtl", "ltr", "ltr", "rtl", "ltr", "rtl"]);
});

test("right-to-left text is isolated in sentences, not in files", () => {
  expect([isolate("a"), isolate("1א"), withoutIsolates(quoteText("א"))]).toEqual(["a", "\u20681א\u2069", "“א”"]);
});
