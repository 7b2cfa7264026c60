import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { licenseComment, packPage, substituteWords } from "../packPage";

test("the packed script is unpacked to the original", () => {
  const text = "function f(){return this.width===null}; \n\t“→” let button=()=>`$&`";
  const short = substituteWords(text);
  expect(short.split("\0").reduceRight((rest, word) => rest.replaceAll(word[0]!, word.slice(1)))).toBe(text);
  expect(short.split("\0").at(-1)!.length).toBeLessThan(0.6 * text.length);
  expect(() => substituteWords("\u0001")).toThrow("control character");
  expect(() => substituteWords("\0")).toThrow("control character");
});

test("a packed page ends with the licenses of its packages", async () => {
  const folder = mkdtempSync(join(tmpdir(), "licenses-"));
  expect(() => licenseComment(folder)).toThrow("expected licenses");
  writeFileSync(join(folder, "some.txt"), "Copyright of Some\n");
  const comment = licenseComment(folder);
  expect(comment).toBe("<!--\nThis page contains the package some.\n\nCopyright of Some\n-->");
  const page = '<html><head><meta charset="utf-8" /><style>p{}</style></head><body><script type="module">let a</script></body></html>';
  expect(await packPage(page, { connect: "'none'", wasm: false }, comment)).toMatch(/<\/html>\n<!--[^]*Copyright of Some\n-->$/);
  writeFileSync(join(folder, "worse.txt"), "a -- b");
  expect(() => licenseComment(folder)).toThrow('"--"');
});

test("both pages contain the license of Svelte", () => {
  const license = readFileSync(new URL("../../third_party_licenses/svelte.txt", import.meta.url), "utf8").trim();
  for (const file of ["viewer/page/index.html", "export/page/model.html"]) {
    expect(readFileSync(new URL(`../../pellucid/${file}`, import.meta.url), "utf8")).toContain(license);
  }
});
