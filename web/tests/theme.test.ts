import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { colorAt, textColor } from "../src/drawing/scales";

const css = readFileSync(new URL("../src/drawing/theme.css", import.meta.url), "utf8");

function variables(block: string): Map<string, string> {
  return new Map([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6})/g)].map(([, name, value]) => [name ?? "", value ?? ""]));
}
const [light = new Map<string, string>(), own = new Map<string, string>()] = css.split("\n}\n").slice(0, 2).map(variables);
const dark = new Map([...light, ...own]);

/** Relative luminance, WCAG 2.2. */
function luminance([r, g, b]: readonly number[]): number {
  const part = (value = 0): number => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
}
const rgb = (hex: string): number[] => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function contrast(a: readonly number[], b: readonly number[]): number {
  const [low = 0, high = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

test.each([["light", light], ["dark", dark]])("text reaches AA on its ground, %s", (_, theme) => {
  for (const ground of ["ground", "raised"]) {
    for (const text of ["text", "quiet", "accent", "right", "wrong", "warn"]) {
      expect(contrast(rgb(theme.get(text) ?? ""), rgb(theme.get(ground) ?? "")), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  }
  expect(contrast(rgb(theme.get("on-accent") ?? ""), rgb(theme.get("accent") ?? ""))).toBeGreaterThanOrEqual(4.5);
});

test.each([false, true])("letters are read on every tint (dark: %s)", (isDark) => {
  for (const colormap of ["weight", "difference"] as const) {
    for (let index = colormap === "weight" ? 0 : -200; index <= 200; index++) {
      const letters = textColor(index / 200, colormap, isDark) === "#000" ? [0, 0, 0] : [255, 255, 255];
      expect(contrast(letters, colorAt(index / 200, colormap, isDark)), `${colormap} ${index / 200}`).toBeGreaterThanOrEqual(4.5);
    }
  }
});
