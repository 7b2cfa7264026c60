/** Build settings that both pages share. */
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { UserConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";
import { bundledPackagesPlugin } from "./bundledPackages.ts";
import { packPagePlugin, type PagePolicy } from "./packPage.ts";
import { removeUnusedFeatures, removeUnusedText } from "./svelteReductions.ts";
import { wasmKernelPlugin } from "./wasmKernel.ts";

/** Settings that build one page, `file`, into a folder. */
export function pageConfig(file: string, outDir: string, policy: PagePolicy): UserConfig {
  return {
    plugins: [wasmKernelPlugin(), removeUnusedFeatures(), svelte(), removeUnusedText(), bundledPackagesPlugin(), viteSingleFile({ removeViteModuleLoader: true }), packPagePlugin(file, policy)],
    build: {
      outDir,
      emptyOutDir: true,
      target: "es2022",
      modulePreload: false,
      assetsInlineLimit: 0,
      rollupOptions: { input: fileURLToPath(new URL(file, import.meta.url)) },
    },
  };
}
