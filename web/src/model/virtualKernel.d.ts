/** Bytes of the WebAssembly kernel in base64 (web/wasmKernel.ts). */
declare module "virtual:kernel" {
  const bytes: string;
  export default bytes;
}
