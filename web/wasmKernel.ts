/** Plugin that compiles web/wasm/kernel.ts to WebAssembly: the module `virtual:kernel` has its bytes in base64. */
import { readFileSync } from "node:fs";
import { compileString } from "assemblyscript/asc";
import type { Plugin } from "vite";

const NAME = "virtual:kernel";
const SOURCE = new URL("wasm/kernel.ts", import.meta.url);

/** Compiles the kernel. Throws with the messages of the compiler if it cannot. */
export async function compileKernel(): Promise<Uint8Array> {
  const { error, binary, stderr } = await compileString(
    { "kernel.ts": readFileSync(SOURCE, "utf8") },
    { optimizeLevel: 3, shrinkLevel: 1, runtime: "stub", noAssert: true, importMemory: true, enable: ["simd"] },
  );
  if (error || !binary) throw new Error(`web/wasm/kernel.ts: ${stderr.toString()}`);
  return binary;
}

export function wasmKernelPlugin(): Plugin {
  return {
    name: "wasm-kernel",
    resolveId: (id) => (id === NAME ? `\0${NAME}` : null),
    async load(id) {
      if (id !== `\0${NAME}`) return null;
      return `export default ${JSON.stringify(Buffer.from(await compileKernel()).toString("base64"))};`;
    },
  };
}
