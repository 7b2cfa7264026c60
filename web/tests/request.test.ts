import { describe, expect, it } from "vitest";
import { diagonalWeights, setWeight, oneHotWeights, permuteWeights, barMaximum, uniformWeights } from "../src/what-if/forcedAttention";
import { encodeChange, EMPTY_REQUEST, pushRequest, forceSymbol, editSource, findSeparator, toggleMask, setAttention, decodeChange, replaceText, sameRequest, moveInHistory } from "../src/selection/request";

const requested = { ...EMPTY_REQUEST, text: "abc", masked_positions: [1], forced_attention: [{ step: 2, weights: [0, 0.25, 0.75] }] };
const edit = (change: Parameters<typeof editSource>[3], from = requested) => editSource(from, [...from.text], "", change);

describe("editing a source", () => {
  it("finds the separator of the source symbols", () => {
    expect(findSeparator("ab c", ["a", "b", " ", "c"])).toBe("");
    expect(findSeparator("ab c", ["ab", "c"])).toBe(" ");
    expect(findSeparator("abc", ["ab", "##c"])).toBeNull();
  });
  it("moves masks and forced attention with their symbols", () => {
    const inserted = edit({ kind: "insert", at: 0, symbol: "x" });
    expect(inserted.text).toBe("xabc");
    expect(inserted.masked_positions).toEqual([2]);
    expect(inserted.forced_attention).toEqual([{ step: 2, weights: [0, 0, 0.25, 0.75] }]);
    const deleted = edit({ kind: "delete", at: 1 });
    expect(deleted).toMatchObject({ text: "ac", masked_positions: [], forced_attention: [{ step: 2, weights: [0, 0.75] }] });
    expect(edit({ kind: "delete", at: 2 }, { ...requested, forced_attention: [{ step: 0, weights: [0, 0, 1] }] }).forced_attention).toEqual([]);
  });
  it("keeps masks and forced attention when a symbol is replaced", () => {
    expect(edit({ kind: "replace", at: 0, symbol: "z" })).toEqual({ ...requested, text: "zbc" });
    expect(edit({ kind: "swap", at: 0 }).text).toBe("bac");
    expect(edit({ kind: "swap", at: 2 }).text).toBe("abc");
  });
  it("counts features before the text", () => {
    const featured = { ...EMPTY_REQUEST, text: "ab", features: ["PL"], masked_positions: [2] };
    expect(editSource(featured, ["a", "b"], "", { kind: "delete", at: 0 }).masked_positions).toEqual([1]);
  });
  it("removes masks and forced attention when the text is typed again", () => {
    expect(replaceText(requested, "abc")).toBe(requested);
    expect(replaceText(requested, "abd")).toMatchObject({ masked_positions: [], forced_attention: [] });
  });
  it("masks and unmasks positions, sets and resets attention", () => {
    expect(toggleMask(toggleMask(EMPTY_REQUEST, 3), 1).masked_positions).toEqual([1, 3]);
    expect(sameRequest(toggleMask(toggleMask(EMPTY_REQUEST, 3), 3), EMPTY_REQUEST)).toBe(true);
    expect(sameRequest(setAttention(setAttention(EMPTY_REQUEST, 1, [1]), 1, null), EMPTY_REQUEST)).toBe(true);
    expect(forceSymbol(EMPTY_REQUEST, ["a", "b", "c"], 1, "x").prefix).toEqual(["a", "x"]);
  });
  it("discards undone requests when a new request is pushed", () => {
    let history = { requests: [EMPTY_REQUEST], index: 0 };
    history = pushRequest(history, toggleMask(EMPTY_REQUEST, 1));
    history = pushRequest(history, toggleMask(EMPTY_REQUEST, 1));
    expect(history.requests).toHaveLength(2);
    // While a bar is dragged, its intermediate weights are not part of the history.
    const dragged = pushRequest(pushRequest(history, toggleMask(EMPTY_REQUEST, 2)), toggleMask(EMPTY_REQUEST, 3), true);
    expect(dragged.requests.map(({ masked_positions }) => masked_positions)).toEqual([[], [1], [3]]);
    history = moveInHistory(history, -1);
    expect(moveInHistory(history, -5).index).toBe(0);
    expect(pushRequest(history, toggleMask(EMPTY_REQUEST, 2)).requests.map(({ masked_positions }) => masked_positions)).toEqual([[], [2]]);
  });
});

describe("forced attention", () => {
  const sum = (weights: Float32Array) => weights.reduce((total, weight) => total + weight, 0);
  it("sum to one", () => {
    for (const row of [oneHotWeights(5, 2), uniformWeights(5), diagonalWeights(5, 2, 1, 3), permuteWeights(Float32Array.of(0.5, 0.3, 0.2), 4), setWeight(uniformWeights(5), 1, 0.7), setWeight(oneHotWeights(3, 0), 0, 0.4), setWeight(oneHotWeights(1, 0), 0, 0.2)]) {
      expect(sum(row)).toBeCloseTo(1, 5);
    }
  });
  it("places diagonal weights from the first symbol after the features to the last", () => {
    expect(diagonalWeights(6, 2, 0, 4).indexOf(1)).toBe(2);
    expect(diagonalWeights(6, 2, 3, 4).indexOf(1)).toBe(5);
    expect(diagonalWeights(6, 2, 0, 1).indexOf(1)).toBe(2);
  });
  it("permutes deterministically by seed", () => {
    const row = Float32Array.from({ length: 20 }, (_, index) => index);
    expect(permuteWeights(row, 1)).toEqual(permuteWeights(row, 1));
    expect(permuteWeights(row, 1)).not.toEqual(permuteWeights(row, 2));
    expect([...permuteWeights(row, 1)].sort((a, b) => a - b)).toEqual([...row]);
  });
  it("sets one weight exactly", () => expect(setWeight(Float32Array.of(0.5, 0.3, 0.2), 0, 0.8)[0]).toBeCloseTo(0.8, 6));
});

describe("a change in an address", () => {
  const before = { ...EMPTY_REQUEST, text: "abc", beam_size: 3 };
  it("decodes to the encoded change", () => {
    const after = { ...before, text: "abd", prefix: ["x", " "], masked_positions: [1], forced_attention: [{ step: 0, weights: [0.25, 0.75, 0] }] };
    const encoded = encodeChange(before, after)!;
    expect(decodeChange(before, encoded)).toEqual(after);
    expect(encodeChange(before, decodeChange(before, encoded))).toBe(encoded);
  });
  it("is empty without a change", () => {
    expect(encodeChange(before, { ...before })).toBe("");
    expect(decodeChange(before, "{}")).toEqual(before);
  });
  const rows = (each: ArrayLike<number>[]) => ({ ...before, forced_attention: each.map((weights, step) => ({ step, weights: Array.from(weights) })) });
  it("is short for a long source with equal weights, also at every step", () => {
    expect(encodeChange(before, rows([oneHotWeights(939, 57)]))).toBe('{"forced_attention":"0_0*57_1_0*881"}');
    expect(encodeChange(before, rows(Array(40).fill(uniformWeights(939))))).toBe('{"forced_attention":"0*40_0.001065*939"}');
    expect(encodeChange(before, rows(Array.from({ length: 60 }, (_, step) => oneHotWeights(939, 15 * step))))).not.toBeNull();
  });
  it("is null if it is too long", () => {
    expect(encodeChange(before, rows([Float32Array.from({ length: 300 }, (_, at) => at)]))).not.toBeNull();
    expect(encodeChange(before, rows([Float32Array.from({ length: 600 }, (_, at) => at)]))).toBeNull();
  });
  it("encodes any weights to five digits", () => {
    for (let seed = 1; seed <= 300; seed++) {
      const drawn = permuteWeights(Float32Array.from({ length: 64 }, (_, at) => at), seed);
      const row = (at: number) => Array.from({ length: 1 + (drawn[at]! % 9) }, (_, index) => Number((10 ** -drawn[(at + index) % 64]! * (drawn[(at * index) % 64]! % 3)).toPrecision(5)));
      const forcedRows = [...drawn.slice(0, 5)].sort((a, b) => a - b).map((step, at) => ({ step, weights: row(drawn[20]! % 2 ? at : 0) }));
      const encoded = encodeChange(before, { ...before, forced_attention: forcedRows })!;
      expect(decodeChange(before, encoded).forced_attention).toEqual(forcedRows);
      expect(decodeURIComponent(encodeURIComponent(encoded))).toBe(encoded);
    }
  });
  it("decodes forced attention in plain lists", () => {
    const forcedRows = [{ step: 2, weights: [0, 0.5, 0.5] }];
    expect(decodeChange(before, JSON.stringify({ forced_attention: forcedRows })).forced_attention).toEqual(forcedRows);
  });
  it.each(["x", "0", "_", "0_", "0_1*x", "0_-1", "0.5_1", "0_1*0.5", "0_1*1e99", "0*99999_1*99999", "0_NaN", "0_1e999", "0__1"])("invalid forced attention %s change nothing", (encoded) => {
    expect(decodeChange(before, JSON.stringify({ forced_attention: encoded }))).toEqual(before);
  });
  it.each(["", "{", "null", "[]", '{"text":1}', '{"masked_positions":"x"}', '{"forced_attention":[{}]}', '{"forced_attention":[null]}', '{"prefix":[1]}', '{"run":7,"beam_size":9999}'])("%s changes nothing", (edit) => {
    expect(decodeChange(before, edit)).toEqual(before);
  });
});

it("the bar maximum is 1, or a round number above twice the maximum of small weights", () => {
  expect(barMaximum(oneHotWeights(3, 1))).toBe(1);
  expect(barMaximum(uniformWeights(300))).toBe(0.01);
  expect(barMaximum(Float32Array.of(0.045, 0.04))).toBe(0.1);
  expect(barMaximum(new Float32Array(4))).toBe(1);
});
