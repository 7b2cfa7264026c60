/**
 * Last steps of the build: compresses the script and the style of the page to a third of their size, and adds the
 * licenses of the packages in the script and a Content-Security-Policy, which exported pages keep without a server.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import zopfli from "@gfx/zopfli";
import type { Plugin } from "vite";

const SCRIPT = /<script type="module"[^>]*>([\s\S]*?)<\/script>/;
const STYLE = /\s*<style[^>]*>([\s\S]*?)<\/style>/;

/**
 * Unpacks and runs the script of the page. Short, because it is not compressed; elements are globals by their ids.
 * `main.ts` removes the script element that it adds.
 */
const LOADER = `
if (self.DecompressionStream) {
const script = document.createElement("script"), letters = atob(packed.text), bytes = new Uint8Array(letters.length).map((_, index) => letters.charCodeAt(index));
const text = await new Response(new Response(bytes).body.pipeThrough(new DecompressionStream("deflate-raw"))).text();
script.text = text.split("\\0").reduceRight((text, word) => text.replaceAll(word[0], word.slice(1)));
document.body.append(script);
} else app.textContent = "This page needs a browser of 2023 or newer.";
`;

/** Frequent words of the page, chosen for a small file; without names of the minifier, which change with the code. */
const FREQUENT_WORDS = [
  "return", "Math.max(", "null", "line", "var ", ' class="', "()=>", "let ", "),", "Math.", "&&", "===", ".length",
  "${", "(e,", "it", "text", "weight", "symbol", "this.", "height", "function", "ion", "button", "in", "width", "=>{",
  "columns", "get",
];
/** Control characters that the page does not contain: all except tab and line breaks. */
const CONTROL_CHARACTERS = Array.from({ length: 32 }, (_, code) => String.fromCharCode(code || 127)).filter((character) => !"\t\n\r".includes(character));

/**
 * Replaces frequent words by control characters, so that the text compresses better. The result starts with the words,
 * each after its character. Throws if the text contains such a character.
 */
export function substituteWords(text: string): string {
  const characters = CONTROL_CHARACTERS.slice(0, FREQUENT_WORDS.length);
  if (characters.concat("\0").some((character) => text.includes(character))) throw new Error("the page contains a control character");
  const body = FREQUENT_WORDS.reduce((rest, word, index) => rest.replaceAll(word, characters[index]!), text);
  return [...FREQUENT_WORDS.map((word, index) => characters[index] + word), body].join("\0");
}

/** Parts of the Content-Security-Policy that differ between pages. */
export interface PagePolicy {
  /** Source of requests. */
  readonly connect: "'self'" | "'none'";
  /** Whether the page compiles WebAssembly. */
  readonly wasm: boolean;
}

/** Content-Security-Policy that allows only these scripts, by their hashes. */
export function contentSecurityPolicy(scripts: readonly string[], { connect, wasm }: PagePolicy): string {
  const hashes = scripts.map((script) => `'sha256-${createHash("sha256").update(script).digest("base64")}'`);
  return [
    "default-src 'none'",
    `script-src ${hashes.join(" ")}${wasm ? " 'wasm-unsafe-eval'" : ""}`,
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    `connect-src ${connect}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

/** Compresses with zopfli, which gives the same bytes on every machine; versions of zlib differ. */
async function compress(text: string): Promise<string> {
  return Buffer.from(await zopfli.deflateAsync(Buffer.from(text), { numiterations: 15 })).toString("base64");
}

/** Folder of the licenses, in files named after their packages. */
const LICENSES = fileURLToPath(new URL("../third_party_licenses", import.meta.url));

/** Comment with the licenses of the packages in the page: they ask for their text in every copy, so in exported pages, too. */
export function licenseComment(folder: string): string {
  const files = readdirSync(folder).sort();
  const texts = files.map((file) => `This page contains the package ${file.replace(/\.txt$/, "")}.\n\n${readFileSync(join(folder, file), "utf8").trim()}`);
  const text = texts.join("\n\n");
  if (!text || text.includes("--")) throw new Error(`${folder}: expected licenses without "--", which ends a comment`);
  return `<!--\n${text}\n-->`;
}

/** Compresses a built page, and adds its policy and the comment with licenses. Throws if it has no inline script or style. */
export async function packPage(page: string, policy: PagePolicy, licenses: string): Promise<string> {
  const [script, style] = [SCRIPT, STYLE].map((part) => part.exec(page)?.[1]);
  if (script === undefined || style === undefined) throw new Error("the built page has no inline script or style");
  // The style is added after main.ts has stored the source of the page, and before the first paint.
  const styleScript = `document.head.append(Object.assign(document.createElement("style"),{textContent:${JSON.stringify(style)}}))`;
  const pageScript = `"use strict";(()=>{${script.trim()}})();${styleScript};\n//# sourceURL=pellucid.js`;
  const meta = `<meta http-equiv="Content-Security-Policy" content="${contentSecurityPolicy([LOADER, pageScript], policy)}" />`;
  const packedScripts = `<script type="text/plain" id="packed">${await compress(substituteWords(pageScript))}</script>\n<script type="module">${LOADER}</script>`;
  // Functions, because `$` is a pattern in a replacement text. The scripts are last, because they need the elements before them.
  return page
    .replace(SCRIPT, "")
    .replace(STYLE, "")
    .replace(/\n +/g, "\n")
    .replace("</body>", () => `${packedScripts}\n</body>`)
    .replace("</html>", () => `</html>\n${licenses}`)
    .replace('<meta charset="utf-8" />', (found) => `${found}\n${meta}`);
}

/** Plugin that packs a built page. */
export function packPagePlugin(file: string, policy: PagePolicy): Plugin {
  return {
    name: "pack-page",
    apply: "build",
    async writeBundle(options) {
      const path = join(options.dir ?? "", file);
      writeFileSync(path, await packPage(readFileSync(path, "utf8"), policy, licenseComment(LICENSES)));
    },
  };
}
