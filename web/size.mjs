/** Size limits of the built pages, which are part of the package and of every exported file. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** Limits of each page, near its present size: bytes, and bytes when compressed with gzip. Required are at most 150,000 bytes. */
const LIMITS = {
  "viewer/page/index.html": [135_500, 102_000],
  "export/page/model.html": [122_200, 95_700],
};
for (const [file, [maxSize, maxCompressed]] of Object.entries(LIMITS)) {
  const page = readFileSync(new URL(`../pellucid/${file}`, import.meta.url));
  const packed = gzipSync(page, { level: 9 }).length;
  console.log(`${file}: ${page.length} bytes (at most ${maxSize}), ${packed} gzipped (at most ${maxCompressed})`);
  if (page.length > maxSize || packed > maxCompressed) {
    console.error("the page is too large");
    process.exitCode = 1;
  }
}
