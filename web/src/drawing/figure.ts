/** SVG figures of tables of cells, with line wrapping, in the page's color variables. */
import { escapeXml } from "./animation";
import { colorAt, type Colormap } from "./scales";
import { textWidth } from "./symbols";

export interface FigureCell {
  readonly text?: string;
  /** Small text below the text. */
  readonly note?: string;
  readonly fill?: string;
  readonly fillOpacity?: number;
  readonly color?: string;
  /** Length of a bar, relative to the cell; in wide cells the text follows the bar. */
  readonly bar?: number | undefined;
  readonly frameColor?: string | undefined;
}

export interface FigureTable {
  readonly title: string;
  /** Axis titles. */
  readonly xTitle?: string;
  readonly yTitle?: string;
  readonly headers?: readonly string[];
  readonly rows: readonly (readonly [header: string, cells: readonly FigureCell[]])[];
  /** Minimum column width and row height. */
  readonly size?: readonly [number, number];
}

/** Letter width in sentences, which are narrower than symbols. */
const PROSE_WIDTH = 9.6;
const [FONT_SIZE, SMALL_FONT_SIZE, MARGIN, MAX_WIDTH] = [13, 11, 12, 940];
/** Wider cells hold bars. */
const WIDE_CELL = 240;
const measuredWidth = (text = "", fontSize = FONT_SIZE): number => (text === "" ? 0 : Math.ceil(1.1 * textWidth(text) * fontSize));
const maxOf = (values: readonly number[]): number => values.reduce((top, value) => Math.max(top, value), 0);
/** Truncates long words. */
const truncate = (text = ""): string => (text.length > 42 ? `${[...text].slice(0, 40).join("")}…` : text);

function textElement(x: number, y: number, text: string, more = ""): string {
  return text === "" ? "" : `<text x="${x}" y="${y}"${more}>${escapeXml(text)}</text>`;
}
const QUIET = ` font-size="${SMALL_FONT_SIZE}" fill="var(--quiet)"`;
const HEADING = ` font-size="14" font-weight="600" fill="var(--text)"`;
const textStyle = (color = "var(--text)"): string => ` font-size="${FONT_SIZE}" fill="${color}"`;
const centeredStyle = (fontSize: number, color: string): string => ` font-size="${fontSize}" fill="${color}" text-anchor="middle"`;

/** Title of a picture; long titles are abbreviated. */
const abbreviateTitle = (title: string): string => (title.length > 240 ? `${title.slice(0, 150)} … ${title.slice(-60)}` : title);

/** Wraps a text at a number of characters; longer words are split. */
const wrapText = (text: string, maximum: number): string[] => text.match(new RegExp(`\\S.{0,${Math.floor(maximum) - 1}}(?!\\S)|\\S{1,${Math.floor(maximum)}}`, "gu")) ?? [];

/** Column ranges [from, to) of each line. */
function wrapColumns(widths: readonly number[], availableWidth: number): [number, number][] {
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
  const { title, xTitle = "", yTitle = "", size: [minimum, rowHeight] = [26, 26] } = table;
  const barsOnly = minimum > WIDE_CELL;
  const headers = (table.headers ?? []).map(truncate);
  const rows = table.rows.map(([header, cells]) => [truncate(header), cells, rowHeight + (cells.some((cell) => cell.note) ? 12 : 0) + (!barsOnly && cells.some((cell) => cell.bar) ? 6 : 0)] as const);
  const longest = maxOf(headers.map((header) => measuredWidth(header)));
  const rotated = longest > Math.max(28, 2 * minimum);
  const widths = Array.from({ length: maxOf(rows.map(([, cells]) => cells.length)) }, (_, at) =>
    maxOf([minimum, rotated || minimum < 10 ? 0 : measuredWidth(headers[at]) + 6, ...rows.map(([, cells]) => (cells[at]?.text ? Math.max(measuredWidth(truncate(cells[at].text)), measuredWidth(cells[at].note, SMALL_FONT_SIZE)) + 10 : 0))]),
  );
  const left = MARGIN + (yTitle ? 16 : 0) + maxOf(rows.map(([header]) => measuredWidth(header))) + 8;
  const inside: string[] = [];
  const shapes = new Map<string, string>();
  const shape = (attributes: string, x: number, y: number, width: number, height: number): unknown =>
    shapes.set(attributes, `${shapes.get(attributes) ?? ""}M${+x.toFixed(1)} ${+y.toFixed(1)}h${+width.toFixed(1)}v${+height.toFixed(1)}h${-width.toFixed(1)}z`);
  let [right, y] = [left + measuredWidth(xTitle, SMALL_FONT_SIZE) + 16, top];
  // Titles are about as wide as their table.
  for (const line of wrapText(abbreviateTitle(title), Math.min(90, Math.max(48, (left + widths.reduce((sum, width) => sum + width, 0)) / 9)))) {
    y += 20;
    inside.push(textElement(MARGIN, y, line, HEADING));
    right = Math.max(right, MARGIN + measuredWidth(line, 14));
  }
  for (const [from, to] of wrapColumns(widths, MAX_WIDTH - left)) {
    y += 10;
    if (xTitle && from === 0) inside.push(textElement(left, (y += 14), `${xTitle} →`, QUIET));
    y += 4;
    if (longest > 0) y += rotated ? Math.ceil(longest * 0.87) + 8 : 18;
    const start = y;
    let x = left;
    for (let at = from; at < to; at++) {
      const [width, header] = [widths[at]!, headers[at] ?? ""];
      const middleX = x + width / 2;
      inside.push(textElement(middleX, start - 6, header, rotated ? `${textStyle()} transform="rotate(-60 ${middleX} ${start - 6})"` : centeredStyle(FONT_SIZE, "var(--text)")));
      if (rotated) right = Math.max(right, middleX + measuredWidth(header) / 2 + 8);
      y = start;
      for (const [, cells, height] of rows) {
        const { text, note, fill, fillOpacity = 1, color = "var(--text)", bar, frameColor } = cells[at] ?? {};
        // Gap between text cells; colored cells are adjacent.
        const gap = text === undefined ? 0 : 1;
        const barLength = barsOnly ? (width - WIDE_CELL / 2) * (bar ?? 0) : (width - 8) * (bar ?? 0);
        if (fill) shape(`fill="${fill}" fill-opacity="${fillOpacity.toFixed(2)}"`, x, y, width - gap, height - gap);
        if (bar) shape('fill="var(--weight)"', x + (barsOnly ? 0 : 4), barsOnly ? y + 5 : y + height - 8, barLength, barsOnly ? height - 10 : 4);
        if (frameColor) shape(`fill="none" stroke-width="1.5" stroke="${frameColor}"`, x + 1, y + 1, width - 3, height - 3);
        const line = y + rowHeight / 2 + 4.5;
        inside.push(barsOnly ? textElement(x + barLength + 6, line, truncate(text), textStyle(color)) : textElement(x + width / 2, line, truncate(text), centeredStyle(FONT_SIZE, color)));
        if (note) inside.push(textElement(x + width / 2, line + 13, note, centeredStyle(SMALL_FONT_SIZE, "var(--quiet)")));
        y += height;
      }
      x += width;
    }
    y = start;
    for (const [header, , height] of rows) {
      inside.push(textElement(left - 8, y + height / 2 + 4.5, header, `${textStyle()} text-anchor="end"`));
      y += height;
    }
    if (yTitle) inside.push(textElement(0, 0, `${yTitle} →`, `${QUIET} transform="translate(${MARGIN} ${start}) rotate(90)"`));
    right = Math.max(right, x);
    y = Math.max(y, start + (yTitle ? measuredWidth(yTitle, SMALL_FONT_SIZE) + 16 : 0));
  }
  return [[...shapes].map(([attributes, path]) => `<path shape-rendering="crispEdges" ${attributes} d="${path}"/>`).join("") + inside.join(""), right, y];
}

function svgDocument(inside: string, right: number, y: number): string {
  const size = `width="${Math.ceil(right + MARGIN)}" height="${Math.ceil(y)}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${Math.ceil(right + MARGIN)} ${Math.ceil(y)}" font-family="var(--symbols)"><rect ${size} fill="var(--ground)"/>${inside}</svg>`;
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
 * Renders a picture with its title, axis titles (`above`, `below`, `vertical`), color key (`colormap`, `low`, `high`), notes and
 * legend, from the `data-` attributes of the picture.
 */
export function renderPictureFile(inside: string, [width, height]: readonly [number, number], title: string, labels: DOMStringMap, legend: readonly (readonly [string, string])[], dark: boolean): string {
  const { above = "", below = "", vertical = "", left = 0, top = 0, colormap, low = "", high = "", notes = "" } = labels;
  const x = MARGIN + (vertical ? 16 : 0);
  let [drawing, y, right] = ["", 0, x + width];
  const addLine = (text: string, rowHeight: number, attributes = QUIET, at = x): void => {
    drawing += textElement(at, (y += rowHeight), text, attributes);
    right = Math.max(right, at + measuredWidth(text, attributes === QUIET ? PROSE_WIDTH : 14));
  };
  const addWrappedText = (text: string, rowHeight: number, each: number, attributes = QUIET): void => wrapText(text, Math.max(400, width) / each).forEach((part) => addLine(part, rowHeight, attributes, MARGIN));
  addWrappedText(abbreviateTitle(title), 20, 9, HEADING);
  if (above) addLine(above, 22, QUIET, x + +left);
  const start = (y += 8);
  if (vertical) drawing += textElement(0, 0, vertical, `${QUIET} transform="translate(${MARGIN} ${start + +top}) rotate(90)"`);
  drawing += `<g transform="translate(${x} ${start})">${inside}</g>`;
  y = Math.max(y + height, start + +top + measuredWidth(vertical, SMALL_FONT_SIZE));
  if (below) addLine(below, 16);
  for (const [swatch, name] of legend) {
    drawing += `<g transform="translate(${x} ${y + 12})">${swatch}</g>`;
    addLine(name, 18, QUIET, x + 30);
  }
  if (colormap) {
    addLine(low, 24);
    const from = x + measuredWidth(low, PROSE_WIDTH);
    for (let at = 0; at < 24; at++) drawing += `<rect x="${from + 5 * at}" y="${y - 10}" width="5.5" height="12" fill="rgb(${colorAt(colormap === "weight" ? at / 23 : at / 11.5 - 1, colormap as Colormap, dark).join()})"/>`;
    addLine(high, 0, QUIET, from + 128);
  }
  addWrappedText(notes, 17, 6.5);
  return svgDocument(drawing, right, y + MARGIN);
}

/** Table of bars, scaled to `maximum`. */
export function barTable(title: string, bars: readonly (readonly [name: string, value: number, label?: string])[], maximum = Math.max(1e-9, ...bars.map(([, value]) => value))): FigureTable {
  return { title, size: [360, 24], rows: bars.map(([name, value, label = `${value}`]) => [name, [{ bar: value / maximum, text: label }]]) };
}
