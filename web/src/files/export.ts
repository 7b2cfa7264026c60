/** What a panel gives as files. */
import { plain } from "../data/blocks";
import { fileName, save } from "./file";
import { coloured, png, svgText } from "./paper";

/** The forms a panel has; what it does not give, its menu does not show. */
export interface Files {
  /** Of the file, without its ending; with a capital the title of its picture. */
  readonly name: string;
  /** The title, where it stays as it is: it may begin with the name of a run. */
  readonly title?: string;
  /** What the page draws, or the text of an SVG in the page's colours. */
  readonly picture?: SVGSVGElement | string | undefined;
  readonly data?: unknown;
  readonly table?: readonly (readonly (string | number)[])[];
  readonly tex?: string;
}

export const FORMS = ["SVG", "PNG", "JSON", "CSV", "TikZ"] as const;
export type Form = (typeof FORMS)[number];

export function offered(files: Files): Form[] {
  const has: Record<Form, unknown> = { SVG: files.picture, PNG: files.picture, JSON: files.data, CSV: files.table, TikZ: files.tex };
  return FORMS.filter((form) => has[form] !== undefined);
}

/** A table as CSV (RFC 4180): a field with a comma, a quote, a blank or a break stands in quotes. */
export function csv(table: readonly (readonly (string | number)[])[]): string {
  const field = (value: string | number): string =>
    /[",\s]/.test(`${value}`) || value === "" ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`;
  return table.map((line) => `${line.map(field).join(",")}\r\n`).join("");
}

/** Gives the reader the panel in one form. */
export async function give(files: Files, form: Form): Promise<void> {
  const name = (ending: string): string => fileName(files.name, ending);
  const { picture } = files;
  const title = files.title ?? files.name.replace(/./u, (first) => first.toUpperCase());
  const svg = (): string => (typeof picture === "string" ? coloured(picture, title) : svgText(picture!, title));
  if (form === "SVG") save(name("svg"), svg(), "image/svg+xml");
  if (form === "PNG") save(name("png"), await png(svg()));
  if (form === "JSON") save(name("json"), JSON.stringify(files.data, (_, value: unknown) => plain(value), 1), "application/json");
  if (form === "CSV" && files.table) save(name("csv"), csv(files.table), "text/csv");
  if (form === "TikZ" && files.tex !== undefined) save(name("tex"), files.tex, "text/x-tex");
}
