/** Files that a panel can save. */
import { toPlainLists } from "../data/arrays";
import { fileName, saveFile } from "./download";
import { resolveColors, renderPng, pictureSvg } from "./pictureFiles";

/** Formats of a panel; missing formats are not offered. */
export interface PanelFiles {
  /** File name without suffix; capitalized, the title of the picture. */
  readonly name: string;
  /** Title that must not be capitalized, such as the name of a run. */
  readonly title?: string;
  /** SVG element of the page, or text of an SVG with the page's color variables. */
  readonly picture?: SVGSVGElement | string | undefined;
  readonly data?: unknown;
  readonly table?: readonly (readonly (string | number)[])[];
  readonly tex?: string;
}

export const FILE_FORMATS = ["SVG", "PNG", "JSON", "CSV", "TikZ"] as const;
export type FileFormat = (typeof FILE_FORMATS)[number];

export function availableFormats(files: PanelFiles): FileFormat[] {
  const has: Record<FileFormat, unknown> = { SVG: files.picture, PNG: files.picture, JSON: files.data, CSV: files.table, TikZ: files.tex };
  return FILE_FORMATS.filter((format) => has[format] !== undefined);
}

/** Table as CSV (RFC 4180). */
export function toCsv(table: readonly (readonly (string | number)[])[]): string {
  const field = (value: string | number): string =>
    /[",\s]/.test(`${value}`) || value === "" ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`;
  return table.map((line) => `${line.map(field).join(",")}\r\n`).join("");
}

/** Downloads a panel in one format. */
export async function downloadPanel(files: PanelFiles, format: FileFormat): Promise<void> {
  const name = (suffix: string): string => fileName(files.name, suffix);
  const { picture } = files;
  const title = files.title ?? files.name.replace(/./u, (first) => first.toUpperCase());
  const svg = (): string => (typeof picture === "string" ? resolveColors(picture, title) : pictureSvg(picture!, title));
  if (format === "SVG") saveFile(name("svg"), svg(), "image/svg+xml");
  if (format === "PNG") saveFile(name("png"), await renderPng(svg()));
  if (format === "JSON") saveFile(name("json"), JSON.stringify(files.data, (_, value: unknown) => toPlainLists(value), 1), "application/json");
  if (format === "CSV" && files.table) saveFile(name("csv"), toCsv(files.table), "text/csv");
  if (format === "TikZ" && files.tex !== undefined) saveFile(name("tex"), files.tex, "text/x-tex");
}
