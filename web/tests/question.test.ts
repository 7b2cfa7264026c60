import { describe, expect, it } from "vitest";
import { diagonal, drawn, oneHot, permuted, reach, uniform } from "../src/what-if/aim";
import { addressed, BLANK, changed, continued, edited, joiner, masked, painted, readdressed, retyped, same, stepped } from "../src/selection/question";

const asked = { ...BLANK, text: "abc", masked: [1], painted: [{ step: 2, weights: [0, 0.25, 0.75] }] };
const edit = (change: Parameters<typeof edited>[3], from = asked) => edited(from, [...from.text], "", change);

describe("editing a source", () => {
  it("finds what joins symbols", () => {
    expect(joiner("ab c", ["a", "b", " ", "c"])).toBe("");
    expect(joiner("ab c", ["ab", "c"])).toBe(" ");
    expect(joiner("abc", ["ab", "##c"])).toBeNull();
  });
  it("lets what was given by position move with its symbol", () => {
    const inserted = edit({ kind: "insert", at: 0, symbol: "x" });
    expect(inserted.text).toBe("xabc");
    expect(inserted.masked).toEqual([2]);
    expect(inserted.painted).toEqual([{ step: 2, weights: [0, 0, 0.25, 0.75] }]);
    const deleted = edit({ kind: "delete", at: 1 });
    expect(deleted).toMatchObject({ text: "ac", masked: [], painted: [{ step: 2, weights: [0, 0.75] }] });
    expect(edit({ kind: "delete", at: 2 }, { ...asked, painted: [{ step: 0, weights: [0, 0, 1] }] }).painted).toEqual([]);
  });
  it("replaces in place, keeping what was given", () => {
    expect(edit({ kind: "replace", at: 0, symbol: "z" })).toEqual({ ...asked, text: "zbc" });
    expect(edit({ kind: "swap", at: 0 }).text).toBe("bac");
    expect(edit({ kind: "swap", at: 2 }).text).toBe("abc");
  });
  it("counts features, which stand before the text", () => {
    const featured = { ...BLANK, text: "ab", features: ["PL"], masked: [2] };
    expect(edited(featured, ["a", "b"], "", { kind: "delete", at: 0 }).masked).toEqual([1]);
  });
  it("forgets positions when the text is typed anew", () => {
    expect(retyped(asked, "abc")).toBe(asked);
    expect(retyped(asked, "abd")).toMatchObject({ masked: [], painted: [] });
  });
  it("hides and shows, paints and takes back", () => {
    expect(masked(masked(BLANK, 3), 1).masked).toEqual([1, 3]);
    expect(same(masked(masked(BLANK, 3), 3), BLANK)).toBe(true);
    expect(same(painted(painted(BLANK, 1, [1]), 1, null), BLANK)).toBe(true);
    expect(continued(BLANK, ["a", "b", "c"], 1, "x").prefix).toEqual(["a", "x"]);
  });
  it("remembers, and forgets what was undone when something else is done", () => {
    let history = { past: [BLANK], now: 0 };
    history = changed(history, masked(BLANK, 1));
    history = changed(history, masked(BLANK, 1));
    expect(history.past).toHaveLength(2);
    // A bar that is dragged: what it passed on its way is not gone back to.
    const dragged = changed(changed(history, masked(BLANK, 2)), masked(BLANK, 3), true);
    expect(dragged.past.map(({ masked }) => masked)).toEqual([[], [1], [3]]);
    history = stepped(history, -1);
    expect(stepped(history, -5).now).toBe(0);
    expect(changed(history, masked(BLANK, 2)).past.map(({ masked }) => masked)).toEqual([[], [2]]);
  });
});

describe("rows of attention given by hand", () => {
  const sum = (weights: Float32Array) => weights.reduce((total, weight) => total + weight, 0);
  it("sum to one", () => {
    for (const row of [oneHot(5, 2), uniform(5), diagonal(5, 2, 1, 3), permuted(Float32Array.of(0.5, 0.3, 0.2), 4), drawn(uniform(5), 1, 0.7), drawn(oneHot(3, 0), 0, 0.4), drawn(oneHot(1, 0), 0, 0.2)]) {
      expect(sum(row)).toBeCloseTo(1, 5);
    }
  });
  it("goes from the first symbol after the features to the last", () => {
    expect(diagonal(6, 2, 0, 4).indexOf(1)).toBe(2);
    expect(diagonal(6, 2, 3, 4).indexOf(1)).toBe(5);
    expect(diagonal(6, 2, 0, 1).indexOf(1)).toBe(2);
  });
  it("permutes by its seed alone", () => {
    const row = Float32Array.from({ length: 20 }, (_, index) => index);
    expect(permuted(row, 1)).toEqual(permuted(row, 1));
    expect(permuted(row, 1)).not.toEqual(permuted(row, 2));
    expect([...permuted(row, 1)].sort((a, b) => a - b)).toEqual([...row]);
  });
  it("gives one share exactly", () => expect(drawn(Float32Array.of(0.5, 0.3, 0.2), 0, 0.8)[0]).toBeCloseTo(0.8, 6));
});

describe("a change in an address", () => {
  const before = { ...BLANK, text: "abc", beam_size: 3 };
  it("comes back as it was", () => {
    const after = { ...before, text: "abd", prefix: ["x", " "], masked: [1], painted: [{ step: 0, weights: [0.25, 0.75, 0] }] };
    const told = addressed(before, after)!;
    expect(readdressed(before, told)).toEqual(after);
    expect(addressed(before, readdressed(before, told))).toBe(told);
  });
  it("is nothing where nothing was changed", () => {
    expect(addressed(before, { ...before })).toBe("");
    expect(readdressed(before, "{}")).toEqual(before);
  });
  const rows = (each: ArrayLike<number>[]) => ({ ...before, painted: each.map((weights, step) => ({ step, weights: Array.from(weights) })) });
  it("of a long source is short where weights are equal, also at every step", () => {
    expect(addressed(before, rows([oneHot(939, 57)]))).toBe('{"painted":"0_0*57_1_0*881"}');
    expect(addressed(before, rows(Array(40).fill(uniform(939))))).toBe('{"painted":"0*40_0.001065*939"}');
    expect(addressed(before, rows(Array.from({ length: 60 }, (_, step) => oneHot(939, 15 * step))))).not.toBeNull();
  });
  it("is refused where it is too long", () => {
    expect(addressed(before, rows([Float32Array.from({ length: 300 }, (_, at) => at)]))).not.toBeNull();
    expect(addressed(before, rows([Float32Array.from({ length: 600 }, (_, at) => at)]))).toBeNull();
  });
  it("holds rows of any kind exactly, to five digits of a weight", () => {
    for (let seed = 1; seed <= 300; seed++) {
      const drawn = permuted(Float32Array.from({ length: 64 }, (_, at) => at), seed);
      const row = (at: number) => Array.from({ length: 1 + (drawn[at]! % 9) }, (_, place) => Number((10 ** -drawn[(at + place) % 64]! * (drawn[(at * place) % 64]! % 3)).toPrecision(5)));
      const painted = [...drawn.slice(0, 5)].sort((a, b) => a - b).map((step, at) => ({ step, weights: row(drawn[20]! % 2 ? at : 0) }));
      const told = addressed(before, { ...before, painted })!;
      expect(readdressed(before, told).painted).toEqual(painted);
      expect(decodeURIComponent(encodeURIComponent(told))).toBe(told);
    }
  });
  it("of an older page is read", () => {
    const painted = [{ step: 2, weights: [0, 0.5, 0.5] }];
    expect(readdressed(before, JSON.stringify({ painted })).painted).toEqual(painted);
  });
  it.each(["x", "0", "_", "0_", "0_1*x", "0_-1", "0.5_1", "0_1*0.5", "0_1*1e99", "0*99999_1*99999", "0_NaN", "0_1e999", "0__1"])("rows told as %s change nothing", (told) => {
    expect(readdressed(before, JSON.stringify({ painted: told }))).toEqual(before);
  });
  it.each(["", "{", "null", "[]", '{"text":1}', '{"masked":"x"}', '{"painted":[{}]}', '{"painted":[null]}', '{"prefix":[1]}', '{"rival":7,"beam_size":9999}'])("%s changes nothing", (edit) => {
    expect(readdressed(before, edit)).toEqual(before);
  });
});

it("bars reach to 1, or where all weights are small to a round number above twice the greatest", () => {
  expect(reach(oneHot(3, 1))).toBe(1);
  expect(reach(uniform(300))).toBe(0.01);
  expect(reach(Float32Array.of(0.045, 0.04))).toBe(0.1);
  expect(reach(new Float32Array(4))).toBe(1);
});
