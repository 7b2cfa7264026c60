/**
 * Removes unused features from Svelte's runtime, so that the bundler eliminates their code: hydration, error and pending
 * boundaries, deep state (only `$state.raw` is used), async changes and forks, animations of rows, transitions, form
 * resets, dates, stores, `style:` beside a `style` text or with `|important`, lists and objects of classes, unmounting,
 * abort signals and trusted-types policies. The replacements match the pinned version; the build stops if one does not
 * match, or if a component uses a removed feature.
 */
import { posix } from "node:path";
import type { Plugin } from "vite";

/** Replaced text of each file of the runtime. */
const REPLACEMENTS: Record<string, [from: string, to: string][]> = {
  "client/dom/hydration.js": [
    ["export let hydrating = false;", "export const hydrating = false;"],
    ["\thydrating = value;", ""],
  ],
  "client/dom/blocks/boundary.js": [["\tnew Boundary(node, props, children, transform_error);", "\tchildren(node);"]],
  "client/error-handling.js": [["(effect.f & BOUNDARY_EFFECT) !== 0", "false"]],
  "client/reactivity/sources.js": [
    ["should_proxy ? proxy(value) : value", "value"],
    ["!batch.is_fork && eager_effects.size > 0 && !eager_effects_deferred", "false"],
    ["if ((flags & EAGER_EFFECT) !== 0)", "if (false)"],
    ["var runes = is_runes();", "const runes = true;"],
  ],
  "client/reactivity/deriveds.js": [
    ["if (e.ac !== null)", "if (false)"],
    ["!current_batch?.is_fork || derived.deps === null", "true"],
    [" || current_batch?.is_fork", ""],
  ],
  "client/runtime.js": [
    ["var is_fork = current_batch?.is_fork;", "const is_fork = false;"],
    ["if (reaction.ac !== null)", "if (false)"],
    ["if (derived.ac !== null)", "if (false)"],
  ],
  "client/reactivity/async.js": [["if (async.length === 0 && pending.length === 0) {", "if (true) {"]],
  "client/dom/blocks/branches.js": [["var defer = should_defer_append();", "const defer = false;"]],
  "client/dom/blocks/each.js": [
    ["var defer = should_defer_append();", "const defer = false;"],
    ["(flags & EACH_IS_ANIMATED) !== 0", "false"],
  ],
  "client/reactivity/effects.js": [
    ["current_batch?.register_created_effect(effect);", ""],
    ["if (options.outro)", "if (false)"],
    ["if (remaining > 0)", "if (false)"],
    ["const controller = effect.ac;", "const controller = null;"],
    ["var transitions = effect.nodes && effect.nodes.t;", "const transitions = null;"],
    ["var t = effect.nodes && effect.nodes.t;", "const t = null;"],
    ["var t = effect.nodes && effect.nodes.t;", "const t = null;"],
  ],
  // Without promises, no batch is deferred.
  "client/reactivity/batch.js": [
    ["\tis_fork = false;\n", ""],
    ["this.#deferred?.resolve();", ""],
    ["this.#deferred?.resolve();", ""],
    ["for (const fn of this.#commit_callbacks) fn(this);", ""],
    ["this.#commit_callbacks.clear();", ""],
    ["for (const fn of this.#discard_callbacks) fn(this);", ""],
    ["this.#discard_callbacks.clear();", ""],
    ["if (!this.#is_deferred()) this.discard();", "this.discard();"],
    ["this.#commit();", ""],
    ["!batch.#intersects(this)", "true"],
    ["batch.is_fork", "false"],
    ["if (!this.is_fork) {", "{"],
    ["(!this.is_fork && this.prev", "(this.prev"],
    [" || this.#skipped_branches.has(effect)", ""],
  ],
  "client/reactivity/props.js": [
    ["runes && bindable ? proxy(value) : value", "value"],
    ["var runes = !legacy_mode_flag || (flags & PROPS_IS_RUNES) !== 0;", "const runes = true;"],
    ["[initial_value, is_store_sub] = capture_store_binding(() => /** @type {V} */ (props[key]));", "initial_value = props[key];"],
    ["var is_store_sub = false;", "const is_store_sub = false;"],
    ["var is_entry_props = STATE_SYMBOL in props || LEGACY_PROPS in props;", "const is_entry_props = false;"],
    ["key === STATE_SYMBOL || key === LEGACY_PROPS", "key === STATE_SYMBOL"],
  ],
  "client/constants.js": [["STALE_REACTION = new (class", "STALE_REACTION = /* @__PURE__ */ new (class"]],
  "client/render.js": [["mounted_components.set(component, unmount);", ""]],
  "client/dom/operations.js": [
    ["is ? document.createElement(tag, { is }) : document.createElement(tag)", "document.createElement(tag)"],
    ["is ? document.createElementNS(namespace, tag, { is }) : document.createElementNS(namespace, tag)", "document.createElementNS(namespace, tag)"],
  ],
  "client/dom/reconciler.js": [
    ["globalThis?.window?.trustedTypes &&", "false &&"],
    ["policy?.createHTML(html) ?? html", "html"],
  ],
  "client/dom/elements/bindings/shared.js": [["\tadd_form_reset_listener();", ""]],
  "client/dom/elements/bindings/input.js": [["input.type === 'date' && !value && !input.value", "false"]],
  "client/dom/elements/style.js": [["Array.isArray(next_styles)", "false"]],
  "shared/attributes.js": [
    ["if (value) {\n\t\t\t// strip comments", "if (false) {\n\t\t\t// strip comments"],
    ["Array.isArray(styles)", "false"],
    ["important ? ' !important;' : ';'", "';'"],
    ["typeof value === 'object'", "false"],
  ],
  "../utils.js": [["...DOM_BOOLEAN_ATTRIBUTES,", ""]],
};
/** Removed text: from the first to the second string of a pair, without the second. */
const REMOVED_TEXT: Record<string, [from: string, to: string][]> = {
  "client/render.js": [["\t\treturn () => {\n\t\t\tfor (var event_name of registered_events) {", "\t});\n\n\tmounted_components"]],
  "client/dom/elements/bindings/shared.js": [["\tconst prev = /** @type {any} */ (element)[FORM_RESET_HANDLER];", "\tadd_form_reset_listener();"]],
  "client/reactivity/batch.js": [
    ["// if the batch has outstanding pending work", "// clear effects. Those that are still needed"],
    ["// defer render effects inside a pending boundary", "this.#scheduled.push(effect);"],
    ["for (const deferred of this.async_deriveds.values()) {", "this.#unlink();\n\t\tthis.#deferred"],
  ],
};
/** Removed methods, which are then unused. */
const REMOVED_METHODS: Record<string, string[]> = {
  "client/reactivity/batch.js": [
    "#is_deferred()", "#is_skipped(effect)", "skip_effect(effect)", "unskip_effect(effect, callback = (e) => this.schedule(e))",
    "#find_earlier_batch()", "#intersects(batch)", "#merge(batch)", "#defer_effects(effects)", "#commit()", "increment(blocking, effect)",
    "decrement(blocking, effect)", "transfer_reactions(dirty_reactions)", "oncommit(fn)", "ondiscard(fn)", "settled()",
    "register_created_effect(effect)",
  ],
};
const METHOD_END = "\n\t}\n";
/** Features that components must not use, because they are removed. */
const REMOVED_FEATURES = /\$\$slots|<slot\b|\$state\(|\$state<|<svelte:boundary|\{#await|\{await|\bfork\(|\s(?:animate|in|out|transition):\w+[\s>={]|\|important|\sclass=\{[[{]|type="date"|svelte\/(store|transition)|<form\b|\sstyle:[^>]*\sstyle=|\sstyle=[^>]*\sstyle:|getAbortSignal/;

/** Plugin that removes unused features from Svelte's runtime. */
export function removeUnusedFeatures(): Plugin {
  return {
    name: "remove-unused-features",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      if (/\/web\/src\/.*\.svelte(\.ts)?$/.test(id) && REMOVED_FEATURES.test(code)) throw new Error(`${id}: this feature of Svelte is removed from the page; see web/svelteReductions.ts`);
      const name = Object.keys(REPLACEMENTS).find((each) => id.endsWith(posix.join("svelte/src/internal", each)));
      if (!name) return null;
      const withoutMethods = (REMOVED_METHODS[name] ?? []).reduce((text, method) => removeText(text, `\n\t${method} {\n`, METHOD_END, METHOD_END.length), code);
      const remaining = (REMOVED_TEXT[name] ?? []).reduce((text, [from, to]) => removeText(text, from, to), withoutMethods);
      return { code: REPLACEMENTS[name]!.reduce(replaceText, remaining), map: null };
    },
  };
}

/** Plugin that removes from all files the names of snippets for slots and the links to error explanations. */
export function removeUnusedText(): Plugin {
  return {
    name: "remove-unused-text",
    apply: "build",
    enforce: "post",
    transform: (code) => ({ code: code.replace(/,\s*\$\$slots: \{[^}]*\}|https:\/\/svelte\.dev\/e\//g, ""), map: null }),
  };
}

/** Replaces a text. Throws if the code does not contain it. */
function replaceText(code: string, [from, to]: [string, string]): string {
  if (!code.includes(from)) throw new Error(`Svelte's runtime no longer has “${from}”: see web/svelteReductions.ts`);
  return code.replace(from, to);
}

/** Removes the text from a unique string to the next occurrence of another, and a number of characters of that. */
function removeText(code: string, from: string, to: string, numMore = 0): string {
  const [start, rest, ...others] = code.split(from);
  const end = rest?.indexOf(to) ?? -1;
  if (end < 0 || others.length > 0) throw new Error(`Svelte's runtime no longer has “${from}” once: see web/svelteReductions.ts`);
  return start + rest!.slice(end + numMore);
}
