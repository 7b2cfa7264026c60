/** Downloads created in the page. */
import type { PageContents, ReportDocument } from "../data/contents";

let source = "";

/** Stores the source of the page before it is rendered. */
export function rememberPageSource(): void {
  source = `<!doctype html>\n${document.documentElement.outerHTML}`;
}

/** JSON for a `<script>` element; `<` is escaped, so that no text can close it. */
export function toScriptJson(contents: PageContents | ReportDocument): string {
  return JSON.stringify(contents).replaceAll("<", "\\u003c");
}

/** Page as a self-contained file. */
export function standalonePage(contents: PageContents | ReportDocument): string {
  const parsed = new DOMParser().parseFromString(source, "text/html");
  const scripts = [...parsed.querySelectorAll('script[type="application/json"]')].filter((each) => each.id === "contents");
  for (const each of scripts.slice(1)) each.remove();
  const script = scripts[0] ?? parsed.body.appendChild(parsed.createElement("script"));
  script.setAttribute("type", "application/json");
  script.id = "contents";
  script.textContent = toScriptJson(contents);
  // The parser moves trailing text into the body; each saved copy would add a line.
  while (parsed.body.lastChild?.nodeType === Node.TEXT_NODE) parsed.body.lastChild.remove();
  return `<!doctype html>\n${parsed.documentElement.outerHTML}\n`;
}

/** File name that is valid on every file system. */
export function fileName(text: string, suffix: string): string {
  const plain = text.normalize("NFKC").replaceAll(/[^\p{L}\p{N}]+/gu, "-").replaceAll(/^-+|-+$/g, "").slice(0, 60);
  return `${plain || "pellucid"}.${suffix}`;
}

/** Downloads a file. */
export function saveFile(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type: `${type};charset=utf-8` }) : content;
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
