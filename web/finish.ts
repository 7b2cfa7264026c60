/**
 * The last steps of a build, on the file as it was written: its script and style are packed, to a third of their size, and the page's
 * Content-Security-Policy goes in, so that an exported page keeps it without a server.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import zopfli from "@gfx/zopfli";
import type { Plugin } from "vite";

const SCRIPT = /<script type="module"[^>]*>([\s\S]*?)<\/script>/;
const STYLE = /\s*<style[^>]*>([\s\S]*?)<\/style>/;

/**
 * Unpacks the page's script and runs it; it is short, for it is not packed itself, and elements are globals by their ids.
 * `main.ts` takes its element away before anything looks at the document.
 */
const LOADER = `
if (self.DecompressionStream) {
const script = document.createElement("script"), bytes = Uint8Array.from(atob(packed.text), (letter) => letter.charCodeAt());
const text = await new Response(new Response(bytes).body.pipeThrough(new DecompressionStream("deflate-raw"))).text();
script.text = text.split("\\0").reduceRight((text, word) => text.replaceAll(word[0], word.slice(1)));
document.body.append(script);
} else app.textContent = "This page needs a browser of 2023 or newer.";
`;

/** What comes often in the page, of many choices one that makes it small; no name that the minifier gave, for these change with the code. */
const WORDS = [
  "return", "Math.max(", "null", "line", "var ", ' class="', "()=>", "let ", "),", "Math.", "&&", "===", ".length",
  "${", "(e,", "it", "text", "weight", "symbol", "this.", "height", "function", "ion", "button", "in", "width", "=>{",
  "columns", "get",
];
/** Letters that no text holds: the control letters but for tab and ends of lines, which texts do hold. */
const LETTERS = Array.from({ length: 32 }, (_, code) => String.fromCharCode(code || 127)).filter((letter) => !"\t\n\r".includes(letter));

/**
 * A text in which a control letter stands for each of these words, which makes it smaller when it is deflated; it begins with
 * the words, each after its letter. Throws where the text has such a letter itself.
 */
export function shortened(text: string): string {
  const letters = LETTERS.slice(0, WORDS.length);
  if (letters.concat("\0").some((letter) => text.includes(letter))) throw new Error("the page has a control letter of its own");
  const body = WORDS.reduce((rest, word, place) => rest.replaceAll(word, letters[place]!), text);
  return [...WORDS.map((word, place) => letters[place] + word), body].join("\0");
}

/** The policy for a page of these scripts: by hash, so that nothing else in the page can run. */
export function policyOf(scripts: readonly string[]): string {
  const hashes = scripts.map((script) => `'sha256-${createHash("sha256").update(script).digest("base64")}'`);
  return [
    "default-src 'none'",
    `script-src ${hashes.join(" ")}`,
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

/** What gzip would make of it at its best; the same bytes on every machine, which zlib's versions do not give. */
async function deflated(text: string): Promise<string> {
  return Buffer.from(await zopfli.deflateAsync(Buffer.from(text), { numiterations: 15 })).toString("base64");
}

/** A built page, packed, with its policy in it. Throws where the page has no script or style of its own. */
export async function finished(page: string): Promise<string> {
  const [script, style] = [SCRIPT, STYLE].map((part) => part.exec(page)?.[1]);
  if (script === undefined || style === undefined) throw new Error("the built page has no script or no style of its own");
  // The style comes when the page has kept its own text (main.ts), and before anything is painted.
  const styled = `document.head.append(Object.assign(document.createElement("style"),{textContent:${JSON.stringify(style)}}))`;
  const whole = `"use strict";(()=>{${script.trim()}})();${styled};\n//# sourceURL=pellucid.js`;
  const meta = `<meta http-equiv="Content-Security-Policy" content="${policyOf([LOADER, whole])}" />`;
  const both = `<script type="text/plain" id="packed">${await deflated(shortened(whole))}</script>\n<script type="module">${LOADER}</script>`;
  // Functions, because in a text `$` would be read as a pattern. The scripts go last: they need what stands before them.
  return page
    .replace(SCRIPT, "")
    .replace(STYLE, "")
    .replace(/\n +/g, "\n")
    .replace("</body>", () => `${both}\n</body>`)
    .replace('<meta charset="utf-8" />', (found) => `${found}\n${meta}`);
}

export function finish(): Plugin {
  return {
    name: "finish",
    apply: "build",
    async writeBundle(options) {
      const path = join(options.dir ?? "", "index.html");
      writeFileSync(path, await finished(readFileSync(path, "utf8")));
    },
  };
}
