/** Puts the page's Content-Security-Policy into the built file, so that an exported page keeps it without a server. */
import { createHash } from "node:crypto";
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

export function policy(): Plugin {
  return {
    name: "policy",
    enforce: "post",
    apply: "build",
    generateBundle(_, bundle) {
      for (const file of Object.values(bundle)) {
        if (file.type !== "asset" || !file.fileName.endsWith(".html")) continue;
        const page = String(file.source);
        const script = SCRIPT.exec(page)?.[1];
        if (script === undefined) this.error("the built page has no script of its own");
        const meta = `<meta http-equiv="Content-Security-Policy" content="${policyOf(script)}" />`;
        // A function, because the second argument's `$` would otherwise be read as a pattern.
        file.source = page.replace('<meta charset="utf-8" />', (found) => `${found}\n    ${meta}`);
      }
    },
  };
}
