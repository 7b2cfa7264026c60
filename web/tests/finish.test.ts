import { expect, test } from "vitest";
import { shortened } from "../finish";

test("a shortened text is the text again when its words are put back, as the page does it", () => {
  const text = "function f(){return this.width===null}; \n\t“→” let button=()=>`$&`";
  const short = shortened(text);
  expect(short.split("\0").reduceRight((rest, word) => rest.replaceAll(word[0]!, word.slice(1)))).toBe(text);
  expect(short.split("\0").at(-1)!.length).toBeLessThan(0.6 * text.length);
  expect(() => shortened("\u0001")).toThrow("control letter");
  expect(() => shortened("\0")).toThrow("control letter");
});
