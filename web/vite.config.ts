import { svelte } from "@sveltejs/vite-plugin-svelte";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";
import { packPagePlugin } from "./packPage.ts";
import { wasmKernelPlugin } from "./wasmKernel.ts";
import { removeUnusedFeatures, removeUnusedText } from "./svelteReductions.ts";

export default defineConfig({
  plugins: [wasmKernelPlugin(), removeUnusedFeatures(), svelte(), removeUnusedText(), viteSingleFile({ removeViteModuleLoader: true }), packPagePlugin()],
  build: {
    outDir: "../pellucid/viewer/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"] },
});
