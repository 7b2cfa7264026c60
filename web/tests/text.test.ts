import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { joinSymbols, splitText } from "../src/model/text";

// tests/test_ipa_phones.py reads the same cases.
const CASES = JSON.parse(readFileSync(new URL("phones.json", import.meta.url), "utf8")) as { text: string; phones: string[] }[];

test.each(CASES)("phones of $text", ({ text, phones }) => {
  expect(splitText("ipa", text)).toEqual(phones);
  expect(joinSymbols("ipa", phones)).toBe(text);
});

test("phones of any text join to the text", () => {
  const characters = [..."atʃʰːˈˌ.| \u035c\u0361\u0329˥²\ua71cⁿ1😀", "\ud800"];
  let state = 1;
  for (let count = 0; count < 5_000; count++) {
    let text = "";
    for (let size = count % 12; size > 0; size--) {
      state = (state * 48_271) % 2_147_483_647;
      text += characters[state % characters.length]!;
    }
    const phones = splitText("ipa", text);
    expect(phones.join("")).toBe(text);
    for (const phone of phones) expect(splitText("ipa", phone)).toEqual([phone]);
  }
});
