/** Hash part of the address: the selection, for links. */

/** Parses a hash; invalid parts are ignored. */
export function parseHash(hash: string): Map<string, string> {
  const told = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) told.set(name, value);
  return told;
}

/** Formats a hash of non-default values; "" if there are none. */
export function formatHash(told: Iterable<[string, string | number | null | undefined]>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of told) if (value !== null && value !== undefined && value !== "") parts.set(name, `${value}`);
  const text = parts.toString();
  return text === "" ? "" : `#${text}`;
}

/** Integer of the hash, or a default. */
export function hashInteger<T>(told: Map<string, string>, name: string, otherwise: T): number | T {
  const value = told.get(name);
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) : otherwise;
}

/** Allowed word of the hash, or the first one. */
export function hashChoice<T extends string>(told: Map<string, string>, name: string, allowed: readonly [T, ...T[]]): T {
  return allowed.find((each) => each === told.get(name)) ?? allowed[0];
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
