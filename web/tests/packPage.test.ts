import { expect, test } from "vitest";
import { substituteWords } from "../packPage";

test("the packed script is unpacked to the original", () => {
  const text = "function f(){return this.width===null}; \n\t“→” let button=()=>`$&`";
  const short = substituteWords(text);
  expect(short.split("\0").reduceRight((rest, word) => rest.replaceAll(word[0]!, word.slice(1)))).toBe(text);
  expect(short.split("\0").at(-1)!.length).toBeLessThan(0.6 * text.length);
  expect(() => substituteWords("\u0001")).toThrow("control character");
  expect(() => substituteWords("\0")).toThrow("control character");
});
