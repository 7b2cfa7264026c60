/**
 * Leaves out of Svelte's runtime what this page never does, so that the bundler finds it dead: taking over markup made
 * on a server (nothing is hydrated), boundaries that catch errors or wait (there are none; an error reaches the console
 * either way), and state that is watched in its depths (`$state.raw` alone is used). It knows the text of the pinned
 * version, and stops the build where it does not find it, or where a component asks for what is left out.
 */
import type { Plugin } from "vite";

const CHANGES: Record<string, [from: string, to: string][]> = {
  "client/dom/hydration.js": [
    ["export let hydrating = false;", "export const hydrating = false;"],
    ["\thydrating = value;", ""],
  ],
  "client/dom/blocks/boundary.js": [["\tnew Boundary(node, props, children, transform_error);", "\tchildren(node);"]],
  "client/error-handling.js": [["(effect.f & BOUNDARY_EFFECT) !== 0", "false"]],
  "client/reactivity/sources.js": [["should_proxy ? proxy(value) : value", "value"]],
  "client/reactivity/props.js": [["runes && bindable ? proxy(value) : value", "value"]],
};
const ABSENT = /\$state\(|\$state<|<svelte:boundary/;

export function lean(): Plugin {
  return {
    name: "lean",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      if (/\/web\/src\/.*\.svelte(\.ts)?$/.test(id) && ABSENT.test(code)) throw new Error(`${id}: the page is built without deep state and boundaries (web/lean.ts)`);
      const name = Object.keys(CHANGES).find((each) => id.endsWith(`svelte/src/internal/${each}`));
      if (!name) return null;
      return { code: CHANGES[name]!.reduce(changed, code), map: null };
    },
  };
}

function changed(code: string, [from, to]: [string, string]): string {
  if (!code.includes(from)) throw new Error(`Svelte's runtime no longer has “${from}”: see web/lean.ts`);
  return code.replace(from, to);
}
