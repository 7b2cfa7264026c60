import { readdirSync } from "node:fs";
import { basename } from "node:path";
import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

const COMPONENTS = readdirSync(new URL("src", import.meta.url), { recursive: true }).map((path) => basename(path)).sort();

export default {
  preprocess: vitePreprocess({ script: false }),
  compilerOptions: {
    runes: true,
    discloseVersion: false,
    // Short names of scoped classes, which occur hundreds of times in the page.
    cssHash: ({ filename }) => `_${COMPONENTS.indexOf(basename(filename)).toString(36)}`,
  },
};
