/** Plugin that lists the packages whose code a built page contains, for the bill of materials in the wheel (setup.py). */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** A package of npm in a page, as `package-lock.json` names it. */
export interface BundledPackage {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Hash of the archive in the registry: an algorithm and base64. */
  readonly integrity: string;
}

/** Files of a bundle by their ids. */
type BundledFiles = Record<string, { readonly renderedLength: number }>;

const FILE = "bundled-packages.json";
const PACKAGE = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//;
/** Files that the build makes itself: the kernel, and the script element of a page. */
const OWN_FILE = /^(\0virtual:kernel|.*\/web\/(?!node_modules\/)[^?]*(\?.*)?)$/;

/** Folders of the packages of the files that are in the page. Throws if a file belongs neither to a package nor to web/. */
export function listPackageFolders(files: BundledFiles): string[] {
  const folders = new Set<string>();
  for (const [id, { renderedLength }] of Object.entries(files)) {
    const found = PACKAGE.exec(id);
    if (renderedLength === 0 || (!found && OWN_FILE.test(id))) continue;
    if (!found) throw new Error(`${id} is in the page, but neither of web/ nor of a package: web/bundledPackages.ts cannot name its origin`);
    folders.add(found[0].slice(found[0].indexOf("node_modules/"), -1));
  }
  return [...folders].sort();
}

/** Entries of the packages in a lock file, by their folders. Throws if one has no version, license or hash. */
export function readPackages(folders: readonly string[], lock: { packages: Record<string, Partial<BundledPackage>> }): BundledPackage[] {
  return folders.map((folder) => {
    const { version, license, integrity } = lock.packages[folder] ?? {};
    if (!version || !license || !integrity) throw new Error(`web/package-lock.json has no version, license or integrity of ${folder}: run npm install in web`);
    return { name: folder.slice(folder.lastIndexOf("node_modules/") + "node_modules/".length), version, license, integrity };
  });
}

/** Plugin that writes the list beside the page. */
export function bundledPackagesPlugin(): Plugin {
  const files: BundledFiles = {};
  return {
    name: "bundled-packages",
    apply: "build",
    generateBundle(_, bundle) {
      for (const output of Object.values(bundle)) if (output.type === "chunk") Object.assign(files, output.modules);
    },
    writeBundle(options) {
      const lock = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url), "utf8"));
      const packages = readPackages(listPackageFolders(files), lock);
      writeFileSync(join(options.dir ?? "", FILE), `${JSON.stringify(packages, null, 2)}\n`);
    },
  };
}
