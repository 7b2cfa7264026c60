/** SVG figures of tables of cells, with line wrapping, in the page's color variables. */
import { escapeXml } from "./animation";
import { colorAt, type Colormap } from "./scales";
import { textWidth } from "./symbols";

export interface FigureCell {
  readonly text?: string;
  /** Small text below the text. */
  readonly note?: string;
  readonly fill?: string;
  /** Opacity of the fill. */
  readonly shade?: number;
  /** Text color. */
  readonly ink?: string;
  /** Length of a bar, relative to the cell; in wide cells the text follows the bar. */
  readonly bar?: number | undefined;
  /** Color of the frame. */
  readonly edge?: string | undefined;
}

export interface FigureTable {
  readonly title: string;
  /** Axis titles. */
  readonly across?: string;
  readonly down?: string;
  readonly heads?: readonly string[];
  readonly rows: readonly (readonly [head: string, cells: readonly FigureCell[]])[];
  /** Minimum column width and row height. */
  readonly size?: readonly [number, number];
}

/** Letter width in sentences, which are narrower than symbols. */
const PROSE_WIDTH = 9.6;
const [LETTER, SMALL, EDGE, MAX_WIDTH] = [13, 11, 12, 940];
/** Wider cells hold bars. */
const WIDE_CELL = 240;
const measuredWidth = (text = "", letter = LETTER): number => (text === "" ? 0 : Math.ceil(1.1 * textWidth(text) * letter));
const maxOf = (values: readonly number[]): number => values.reduce((top, value) => Math.max(top, value), 0);
/** Truncates long words. */
const truncate = (text = ""): string => (text.length > 42 ? `${[...text].slice(0, 40).join("")}…` : text);

function textElement(x: number, y: number, text: string, more = ""): string {
  return text === "" ? "" : `<text x="${x}" y="${y}"${more}>${escapeXml(text)}</text>`;
}
const QUIET = ` font-size="${SMALL}" fill="var(--quiet)"`;
const HEADING = ` font-size="14" font-weight="600" fill="var(--text)"`;
const textStyle = (ink = "var(--text)"): string => ` font-size="${LETTER}" fill="${ink}"`;
const centeredStyle = (letter: number, ink: string): string => ` font-size="${letter}" fill="${ink}" text-anchor="middle"`;

/** Title of a picture; long titles are abbreviated. */
const abbreviateTitle = (title: string): string => (title.length > 240 ? `${title.slice(0, 150)} … ${title.slice(-60)}` : title);

/** Wraps a text at a number of characters; longer words are split. */
const wrapText = (text: string, maximum: number): string[] => text.match(new RegExp(`\\S.{0,${Math.floor(maximum) - 1}}(?!\\S)|\\S{1,${Math.floor(maximum)}}`, "gu")) ?? [];

/** Column ranges [from, to) of each line. */
function columnLines(widths: readonly number[], availableWidth: number): [number, number][] {
  const ranges: [number, number][] = [];
  let left = 0;
  widths.forEach((width, at) => {
    left -= width;
    const last = ranges.at(-1);
    if (last && left >= 0) last[1] = at + 1;
    else {
      ranges.push([at, at + 1]);
      left = availableWidth - width;
    }
  });
  return ranges;
}

/** Drawing of a table below `top`, with its right and lower edges. */
function drawTable(table: FigureTable, top: number): [string, number, number] {
  const { title, across = "", down = "", size: [minimum, rowHeight] = [26, 26] } = table;
  const barsOnly = minimum > WIDE_CELL;
  const heads = (table.heads ?? []).map(truncate);
  const rows = table.rows.map(([head, cells]) => [truncate(head), cells, rowHeight + (cells.some((cell) => cell.note) ? 12 : 0) + (!barsOnly && cells.some((cell) => cell.bar) ? 6 : 0)] as const);
  const longest = maxOf(heads.map((head) => measuredWidth(head)));
  const rotated = longest > Math.max(28, 2 * minimum);
  const widths = Array.from({ length: maxOf(rows.map(([, cells]) => cells.length)) }, (_, at) =>
    maxOf([minimum, rotated || minimum < 10 ? 0 : measuredWidth(heads[at]) + 6, ...rows.map(([, cells]) => (cells[at]?.text ? Math.max(measuredWidth(truncate(cells[at].text)), measuredWidth(cells[at].note, SMALL)) + 10 : 0))]),
  );
  const left = EDGE + (down ? 16 : 0) + maxOf(rows.map(([head]) => measuredWidth(head))) + 8;
  const inside: string[] = [];
  const shapes = new Map<string, string>();
  const shape = (attributes: string, x: number, y: number, width: number, height: number): unknown =>
    shapes.set(attributes, `${shapes.get(attributes) ?? ""}M${+x.toFixed(1)} ${+y.toFixed(1)}h${+width.toFixed(1)}v${+height.toFixed(1)}h${-width.toFixed(1)}z`);
  let [right, y] = [left + measuredWidth(across, SMALL) + 16, top];
  // Titles are about as wide as their table.
  for (const line of wrapText(abbreviateTitle(title), Math.min(90, Math.max(48, (left + widths.reduce((sum, width) => sum + width, 0)) / 9)))) {
    y += 20;
    inside.push(textElement(EDGE, y, line, HEADING));
    right = Math.max(right, EDGE + measuredWidth(line, 14));
  }
  for (const [from, to] of columnLines(widths, MAX_WIDTH - left)) {
    y += 10;
    if (across && from === 0) inside.push(textElement(left, (y += 14), `${across} →`, QUIET));
    y += 4;
    if (longest > 0) y += rotated ? Math.ceil(longest * 0.87) + 8 : 18;
    const start = y;
    let x = left;
    for (let at = from; at < to; at++) {
      const [width, head] = [widths[at]!, heads[at] ?? ""];
      const middleX = x + width / 2;
      inside.push(textElement(middleX, start - 6, head, rotated ? `${textStyle()} transform="rotate(-60 ${middleX} ${start - 6})"` : centeredStyle(LETTER, "var(--text)")));
      if (rotated) right = Math.max(right, middleX + measuredWidth(head) / 2 + 8);
      y = start;
      for (const [, cells, height] of rows) {
        const { text, note, fill, shade = 1, ink = "var(--text)", bar, edge } = cells[at] ?? {};
        // Gap between text cells; colored cells are adjacent.
        const gap = text === undefined ? 0 : 1;
        const barLength = barsOnly ? (width - WIDE_CELL / 2) * (bar ?? 0) : (width - 8) * (bar ?? 0);
        if (fill) shape(`fill="${fill}" fill-opacity="${shade.toFixed(2)}"`, x, y, width - gap, height - gap);
        if (bar) shape('fill="var(--weight)"', x + (barsOnly ? 0 : 4), barsOnly ? y + 5 : y + height - 8, barLength, barsOnly ? height - 10 : 4);
        if (edge) shape(`fill="none" stroke-width="1.5" stroke="${edge}"`, x + 1, y + 1, width - 3, height - 3);
        const line = y + rowHeight / 2 + 4.5;
        inside.push(barsOnly ? textElement(x + barLength + 6, line, truncate(text), textStyle(ink)) : textElement(x + width / 2, line, truncate(text), centeredStyle(LETTER, ink)));
        if (note) inside.push(textElement(x + width / 2, line + 13, note, centeredStyle(SMALL, "var(--quiet)")));
        y += height;
      }
      x += width;
    }
    y = start;
    for (const [head, , height] of rows) {
      inside.push(textElement(left - 8, y + height / 2 + 4.5, head, `${textStyle()} text-anchor="end"`));
      y += height;
    }
    if (down) inside.push(textElement(0, 0, `${down} →`, `${QUIET} transform="translate(${EDGE} ${start}) rotate(90)"`));
    right = Math.max(right, x);
    y = Math.max(y, start + (down ? measuredWidth(down, SMALL) + 16 : 0));
  }
  return [[...shapes].map(([attributes, path]) => `<path shape-rendering="crispEdges" ${attributes} d="${path}"/>`).join("") + inside.join(""), right, y];
}

function svgDocument(inside: string, right: number, y: number): string {
  const size = `width="${Math.ceil(right + EDGE)}" height="${Math.ceil(y)}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${Math.ceil(right + EDGE)} ${Math.ceil(y)}" font-family="var(--symbols)"><rect ${size} fill="var(--ground)"/>${inside}</svg>`;
}

/** Renders tables below each other. */
export function renderFigure(tables: readonly FigureTable[]): string {
  let [inside, width, y] = ["", 0, 0];
  for (const table of tables) {
    const [text, right, below] = drawTable(table, y);
    [inside, width, y] = [inside + text, Math.max(width, right), below + 14];
  }
  return svgDocument(inside, width, y);
}

/**
 * Renders a picture with its title, axis titles (`above`, `below`, `down`), color key (`hue`, `low`, `high`), notes and
 * legend, from the `data-` attributes of the picture.
 */
export function renderPictureFile(inside: string, [width, height]: readonly [number, number], title: string, labels: DOMStringMap, legend: readonly (readonly [string, string])[], dark: boolean): string {
  const { above = "", below = "", down = "", left = 0, top = 0, colormap, low = "", high = "", notes = "" } = labels;
  const x = EDGE + (down ? 16 : 0);
  let [drawing, y, right] = ["", 0, x + width];
  const line = (text: string, rowHeight: number, attributes = QUIET, at = x): void => {
    drawing += textElement(at, (y += rowHeight), text, attributes);
    right = Math.max(right, at + measuredWidth(text, attributes === QUIET ? PROSE_WIDTH : 14));
  };
  const columnLines = (text: string, rowHeight: number, each: number, attributes = QUIET): void => wrapText(text, Math.max(400, width) / each).forEach((part) => line(part, rowHeight, attributes, EDGE));
  columnLines(abbreviateTitle(title), 20, 9, HEADING);
  if (above) line(above, 22, QUIET, x + +left);
  const start = (y += 8);
  if (down) drawing += textElement(0, 0, down, `${QUIET} transform="translate(${EDGE} ${start + +top}) rotate(90)"`);
  drawing += `<g transform="translate(${x} ${start})">${inside}</g>`;
  y = Math.max(y + height, start + +top + measuredWidth(down, SMALL));
  if (below) line(below, 16);
  for (const [swatch, name] of legend) {
    drawing += `<g transform="translate(${x} ${y + 12})">${swatch}</g>`;
    line(name, 18, QUIET, x + 30);
  }
  if (colormap) {
    line(low, 24);
    const from = x + measuredWidth(low, PROSE_WIDTH);
    for (let at = 0; at < 24; at++) drawing += `<rect x="${from + 5 * at}" y="${y - 10}" width="5.5" height="12" fill="rgb(${colorAt(colormap === "weight" ? at / 23 : at / 11.5 - 1, colormap as Colormap, dark).join()})"/>`;
    line(high, 0, QUIET, from + 128);
  }
  columnLines(notes, 17, 6.5);
  return svgDocument(drawing, right, y + EDGE);
}

/** Table of bars, scaled to `whole`. */
export function barTable(title: string, of: readonly (readonly [name: string, value: number, label?: string])[], svgDocument = Math.max(1e-9, ...of.map(([, value]) => value))): FigureTable {
  return { title, size: [360, 24], rows: of.map(([name, value, label = `${value}`]) => [name, [{ bar: value / svgDocument, text: label }]]) };
}
