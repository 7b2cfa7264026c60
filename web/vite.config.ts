/** Build of the viewer, and tests. */
import { defineConfig } from "vitest/config";
import { pageConfig } from "./pageConfig.ts";

export default defineConfig({
  ...pageConfig("index.html", "../pellucid/viewer/page", { connect: "'self'", wasm: false }),
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"] },
});
