import { svelte } from "@sveltejs/vite-plugin-svelte";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";
import { finish } from "./finish.ts";
import { lean, brief } from "./lean.ts";

export default defineConfig({
  plugins: [lean(), svelte(), brief(), viteSingleFile({ removeViteModuleLoader: true }), finish()],
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
