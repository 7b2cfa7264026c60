/** Puts the page's Content-Security-Policy into the built file, so that an exported page keeps it without a server. */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const SCRIPT = /<script type="module"[^>]*>([\s\S]*?)<\/script>/;

/** The policy for a page whose only script has this text: by hash, so that nothing else in the page can run. */
export function policyOf(script: string): string {
  const hash = createHash("sha256").update(script).digest("base64");
  return [
    "default-src 'none'",
    `script-src 'sha256-${hash}'`,
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

/** A built page with its policy in it. Throws where the page has no script of its own. */
export function withPolicy(page: string): string {
  const script = SCRIPT.exec(page)?.[1];
  if (script === undefined) throw new Error("the built page has no script of its own");
  const meta = `<meta http-equiv="Content-Security-Policy" content="${policyOf(script)}" />`;
  // A function, because in a text `$` would be read as a pattern.
  return page.replace('<meta charset="utf-8" />', (found) => `${found}\n    ${meta}`);
}

export function policy(): Plugin {
  return {
    name: "policy",
    apply: "build",
    // The file as it was written: other plugins change the script until then.
    writeBundle(options) {
      const path = join(options.dir ?? "", "index.html");
      writeFileSync(path, withPolicy(readFileSync(path, "utf8")));
    },
  };
}
