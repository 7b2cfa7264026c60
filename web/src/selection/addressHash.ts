/** The part of the address after `#`: what is selected, so that a link shows it again. */

/** What a hash says, as plain words; unreadable parts are left out. */
export function parseHash(hash: string): Map<string, string> {
  const told = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) told.set(name, value);
  return told;
}

/** The hash of what is not as it was at first; "" where everything is. */
export function formatHash(told: Iterable<[string, string | number | null | undefined]>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of told) if (value !== null && value !== undefined && value !== "") parts.set(name, `${value}`);
  const text = parts.toString();
  return text === "" ? "" : `#${text}`;
}

/** A whole number of the hash, or the one given. */
export function hashInteger<T>(told: Map<string, string>, name: string, otherwise: T): number | T {
  const value = told.get(name);
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) : otherwise;
}

/** One of the words allowed, or the first of them. */
export function hashChoice<T extends string>(told: Map<string, string>, name: string, allowed: readonly [T, ...T[]]): T {
  return allowed.find((each) => each === told.get(name)) ?? allowed[0];
}

/** Shows the hash in the address, as a page of its own to go back from where `push` is said. An iframe without an address of its own refuses that, which costs only the link. */
export function showHash(hash: string, push = false): void {
  try {
    if (location.hash === hash) return;
    history[push ? "pushState" : "replaceState"](null, "", hash || location.pathname + location.search);
  } catch {
    return;
  }
}
