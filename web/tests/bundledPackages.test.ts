import { expect, test } from "vitest";
import { listPackageFolders, readPackages } from "../bundledPackages";

const present = { renderedLength: 1 };

test("the packages of the files in a page are listed once, without those that were eliminated", () => {
  const files = {
    "/clone/web/src/main.ts": present,
    "\0virtual:kernel": present,
    "/clone/web/node_modules/svelte/src/index.js": present,
    "/clone/web/node_modules/svelte/src/utils.js": present,
    "/clone/web/node_modules/@scope/name/index.js": present,
    "/clone/web/node_modules/svelte/node_modules/inner/index.js": present,
    "/clone/web/node_modules/unused/index.js": { renderedLength: 0 },
  };
  expect(listPackageFolders(files)).toEqual(["node_modules/@scope/name", "node_modules/svelte", "node_modules/svelte/node_modules/inner"]);
});

test("a file of unknown origin stops the build", () => {
  expect(() => listPackageFolders({ "\0helper": present })).toThrow("neither");
  expect(() => listPackageFolders({ "/elsewhere/library.js": present })).toThrow("neither");
});

test("a package is described by the lock file", () => {
  const lock = { packages: { "node_modules/@scope/name": { version: "1.2.3", license: "MIT", integrity: "sha512-AAAA" }, "node_modules/bare": { version: "1" } } };
  expect(readPackages(["node_modules/@scope/name"], lock)).toEqual([{ name: "@scope/name", version: "1.2.3", license: "MIT", integrity: "sha512-AAAA" }]);
  expect(() => readPackages(["node_modules/bare"], lock)).toThrow("node_modules/bare");
});
