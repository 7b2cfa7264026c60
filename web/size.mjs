/** The built page must stay small: it travels in the package and in every exported file. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 150_000;
const MOST_PACKED = 50_000;
const page = readFileSync(new URL("../pellucid/viewer/page/index.html", import.meta.url));
const packed = gzipSync(page, { level: 9 }).length;
console.log(`index.html: ${page.length} bytes of ${MOST}, ${packed} of ${MOST_PACKED} gzipped`);
if (page.length > MOST || packed > MOST_PACKED) {
  console.error("the page is too large");
  process.exit(1);
}
