/** Hash part of the address: the selection, for links. */

/** Parses a hash; invalid parts are ignored. */
export function parseHash(hash: string): Map<string, string> {
  const values = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) values.set(name, value);
  return values;
}

/** Formats a hash of non-default values; "" if there are none. */
export function formatHash(values: Iterable<[string, string | number | null | undefined]>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of values) if (value !== null && value !== undefined && value !== "") parts.set(name, `${value}`);
  const text = parts.toString();
  return text === "" ? "" : `#${text}`;
}

/** Integer of the hash, or a default. */
export function hashInteger<T>(values: Map<string, string>, name: string, fallback: T): number | T {
  const value = values.get(name);
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) : fallback;
}

/** Allowed word of the hash, or the first one. */
export function hashChoice<T extends string>(values: Map<string, string>, name: string, allowed: readonly [T, ...T[]]): T {
  return allowed.find((each) => each === values.get(name)) ?? allowed[0];
}

/** Sets the hash of the address, as a new history entry if `push`. An iframe without an address refuses it. */
export function showHash(hash: string, push = false): void {
  try {
    if (location.hash === hash) return;
    history[push ? "pushState" : "replaceState"](null, "", hash || location.pathname + location.search);
  } catch {
    return;
  }
}
