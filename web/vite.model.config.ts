/** Build of the page with models, which `pellucid export --html` completes. */
import { defineConfig } from "vite";
import { pageConfig } from "./pageConfig.ts";

export default defineConfig(pageConfig("model.html", "../pellucid/export/page", { connect: "'none'", wasm: true }));
