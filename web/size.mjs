/** Size limit of the built page, which is part of the package and of every exported file. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

// Required limits, and tighter ones near the present size.
const REQUIRED = [150_000, 50_000];
const [MAX_SIZE, MAX_COMPRESSED] = [132_800, 100_000];
const page = readFileSync(new URL("../pellucid/viewer/page/index.html", import.meta.url));
const packed = gzipSync(page, { level: 9 }).length;
console.log(`index.html: ${page.length} bytes (at most ${MAX_SIZE}), ${packed} gzipped (at most ${MAX_COMPRESSED}); required: ${REQUIRED.join(", ")}`);
if (page.length > MAX_SIZE || packed > MAX_COMPRESSED) {
  console.error("the page is too large");
  process.exit(1);
}
