import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess({ script: false }),
  // Short names of scoped classes: they stand in the page hundreds of times.
  compilerOptions: { cssHash: ({ hash, filename }) => `s${hash(filename).slice(0, 4)}` },
};
