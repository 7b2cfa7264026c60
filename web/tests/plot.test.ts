import { VIEWS } from "./fixtures";
import { describe, expect, it } from "vitest";
import { logTicks, axisRange, svgPath, linearScale, logSeries, formatShort, downsample, ticks } from "../src/drawing/plot";
import { animatedAttentionSvg, interpolatePoints, pointBounds, escapeXml, animatedEmbeddingSvg } from "../src/drawing/animation";
import { mcnemarPValue, groupByOutcome } from "../src/data/comparison";
import { example } from "./fixtures";

describe("axes", () => {
  it("has round ticks within its range", () => {
    expect(ticks(0, 1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(3, 3)).toEqual([3]);
    // A single label would not show the scale.
    expect(ticks(400, 19_200, 3)).toEqual([5000, 10_000, 15_000]);
    expect(ticks(1.1, 1.9, 1).length).toBeGreaterThan(1);
    expect(logTicks(0.001, 3)).toEqual([0.001, 0.01, 0.1, 1]);
    expect(logTicks(0.2, 0.5)).toEqual([0.2, 0.5]);
  });
  it("has at least two labels on a logarithmic axis", () => {
    expect(logTicks(0.4, 3.1)).toEqual([0.5, 1, 2]);
    expect(logTicks(2.1, 4.5)).toEqual([2.5, 3, 3.5, 4, 4.5]);
    for (const low of [1e-4, 0.03, 0.7, 1, 1.01, 2.1, 44]) {
      for (const times of [1.001, 1.2, 2, 3, 9, 50, 120, 1e9]) {
        const levels = logTicks(low, low * times);
        expect(new Set(levels.map(String)).size).toBeGreaterThan(1);
        expect(levels.length).toBeLessThan(9);
        expect(levels[0]).toBeGreaterThanOrEqual(low * 0.999);
      }
    }
  });
  it("has distinct ends for a constant series", () => {
    expect(axisRange([0], false)).toEqual([0, 1]);
    expect(axisRange([3, 3], false)).toEqual([0, 3]);
    expect(axisRange([-3], false)).toEqual([-3, 0]);
    expect(axisRange([5], false, 100)).toEqual([0, 100]);
    expect(axisRange([4], true)).toEqual([2, 8]);
    expect(axisRange([1, 4], true)).toEqual([1, 4]);
  });
  it("maps ends to ends, and an empty domain to the middle", () => {
    expect(linearScale(0, 10, 100, 0)(10)).toBe(0);
    expect(linearScale(5, 5, 0, 10)(5)).toBe(5);
  });
  it("leaves a gap at non-finite values", () => expect(svgPath([[0, 1], [1, NaN], [2, 3], [3, 4]])).toBe("M0.0 1.0M2.0 3.0L3.0 4.0"));
  it("keeps minima and maxima when downsampling", () => {
    const points = Array.from({ length: 1000 }, (_, index): [number, number] => [index, index === 500 ? 99 : Math.sin(index)]);
    const thin = downsample(points, 100);
    expect(thin.length).toBeLessThanOrEqual(100);
    expect(Math.max(...thin.map(([, y]) => y))).toBe(99);
    expect(thin.every(([x], index) => index === 0 || x > thin[index - 1]![0])).toBe(true);
  });
  it("rounds only exact values to 1 and 100", () => {
    expect([1, 0.99967, -0.99967, 100, 99.9967, 99.2].map(formatShort)).toEqual(["1", "0.9997", "−0.9997", "100", "99.997", "99.2"]);
  });
  it("abbreviates large numbers", () => expect([75000, 1.2e6, 0.5, 0, 0.00002].map(formatShort)).toEqual(["75k", "1.2M", "0.5", "0", "2e-5"]));
});

it("extracts series from a log", () => {
  const { losses, metrics } = logSeries([
    { event: "stepped", samples: 10, loss: 2, learning_rate: 0.1 },
    { event: "validated", samples: 10, loss: 1.5, exact_match: 50, best: true, update: 1, validation: 1 },
    { event: "stepped", samples: 20, loss: null },
  ], VIEWS.transduce!);
  expect(losses.map(({ name, points }) => [name, points])).toEqual([["training loss", [[10, 2]]], ["validation loss", [[10, 1.5]]]]);
  expect(metrics.map(({ name }) => name)).toEqual(["exact match"]);
});

describe("animations", () => {
  const plane = { plane: Float32Array.of(0, 0, 1, 1), caption: "1" };
  it("interpolates between frames, within the bounds", () => {
    expect([...interpolatePoints(Float32Array.of(0, 2), Float32Array.of(1, 4), 0.5)]).toEqual([0.5, 3]);
    const [left, , right] = pointBounds([plane.plane]);
    expect(left).toBeLessThan(0);
    expect(right).toBeGreaterThan(1);
    expect(pointBounds([])).toEqual([-1, -1, 1, 1]);
  });
  it("is SVG with captions and without scripts", () => {
    expect(escapeXml('</text><script a="&">\u0007')).toBe("&lt;/text&gt;&lt;script a=&quot;&amp;&quot;&gt;�");
    const film = { sources: ["<s>", "b"], frames: [{ target: ["x"], weights: Float32Array.of(0.25, 0.75), caption: "a" }, { target: ["y"], weights: Float32Array.of(1, 0), caption: "b" }] };
    const svg = animatedAttentionSvg(film, 0.5, "#123456");
    expect(svg).toContain('values="0.25;1.00"');
    expect(svg).not.toContain("<s>");
    const long = animatedAttentionSvg({ sources: Array.from({ length: 1000 }, () => "q"), frames: [{ target: ["x"], weights: new Float32Array(1000).fill(0.5), caption: "a" }] }, 0.5, "#123456");
    expect(Number(/width="(\d+)"/.exec(long)![1])).toBeLessThan(960);
    expect(long).toContain(">1000</text>");
    expect(long).not.toContain(">q</text>");
    expect(animatedEmbeddingSvg(["<"], [plane, plane], 1, "red")).toContain("animateTransform");
  });
});

it("counts paired outcomes and computes McNemar's p-value", () => {
  const right = example("a", "x", "x");
  const wrong = example("a", "y", "x");
  expect(groupByOutcome([right, right, wrong, wrong], [right, wrong, right, wrong])).toEqual({ both: [0], first: [1], second: [2], neither: [3] });
  expect(groupByOutcome([example("a", "x", null)], [right]).both).toEqual([]);
  expect(mcnemarPValue(0, 0)).toBe(1);
  expect(mcnemarPValue(0, 5)).toBeCloseTo(2 / 32, 10);
  expect(mcnemarPValue(5, 6)).toBe(1);
});
