import { escapeXml } from "../drawing/animation";
import { renderPictureFile } from "../drawing/figure";
/** SVG and PNG files of pictures. */

// CSS properties that an SVG file must contain.
const COPIED_PROPERTIES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline", "unicode-bidi", "visibility",
  "display", "white-space", "paint-order",
] as const;
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n';

/** Attributes of the interactive page. */
const INTERACTIVE = /^(class|style|tabindex|role|aria-|data-)/;
/** Keyboard hints at the end of a label. */
const HINT = /[.;:] (arrow|left and right).*/i;

function copyStyles(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  for (const name of COPIED_PROPERTIES) {
    const value = style.getPropertyValue(name);
    if (value) to.setAttribute(name, value);
  }
  for (const name of to.getAttributeNames()) if (INTERACTIVE.test(name)) to.removeAttribute(name);
  for (const index of Array.from(from.children).keys()) {
    const [inner, copy] = [from.children[index], to.children[index]];
    if (inner && copy) copyStyles(inner, copy);
  }
}

function svgElement(name: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS(SVG_NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, `${value}`);
  return element;
}

// Heat maps with more cells are embedded as images.
const MAX_VECTOR_CELLS = 40_000;

/** Runs of cells of the same color in a row, as [from, to, color]. */
export function colorRuns(colors: readonly string[]): [number, number, string][] {
  const runs: [number, number, string][] = [];
  colors.forEach((color, at) => {
    const last = runs.at(-1);
    if (last?.[2] === color) last[1] = at + 1;
    else runs.push([at, at + 1, color]);
  });
  return runs;
}

/** Pixels of a canvas scaled to one pixel per cell, as RGBA. */
function cellPixels(canvas: HTMLCanvasElement, columns: number, rows: number): Uint8ClampedArray {
  const small = document.createElement("canvas");
  [small.width, small.height] = [columns, rows];
  const context = small.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("The browser cannot read the canvas.");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, columns, rows);
  return context.getImageData(0, 0, columns, rows).data;
}

/** Cells of the canvas behind a picture as rectangles, which are never blurred. */
function canvasRects(picture: SVGSVGElement): SVGElement[] {
  const canvases = [...(picture.parentElement?.querySelectorAll<HTMLCanvasElement>(":scope > canvas") ?? [])];
  return canvases.flatMap((canvas) => {
    const [here, there] = [picture.getBoundingClientRect(), canvas.getBoundingClientRect()];
    const [columns, rows] = [Number(canvas.dataset.columns), Number(canvas.dataset.rows)];
    const [x, y, width, height] = [there.left - here.left, there.top - here.top, there.width / columns, there.height / rows];
    if (!(columns * rows <= MAX_VECTOR_CELLS)) {
      return [svgElement("image", { x, y, width: there.width, height: there.height, href: canvas.toDataURL("image/png") })];
    }
    const pixels = cellPixels(canvas, columns, rows);
    const color = (cell: number): string => `rgb(${pixels.slice(4 * cell, 4 * cell + 3).join(",")})`;
    return Array.from({ length: rows }, (_, row) =>
      colorRuns(Array.from({ length: columns }, (_, column) => color(row * columns + column))).map(([from, to, fill]) =>
        svgElement("rect", { x: x + from * width, y: y + row * height, width: (to - from) * width, height, fill, "shape-rendering": "crispEdges" }),
      ),
    ).flat();
  });
}

function standaloneCopy(picture: SVGSVGElement): SVGSVGElement {
  const copy = picture.cloneNode(true) as SVGSVGElement;
  const screen = copy.querySelectorAll("[data-screen]");
  copyStyles(picture, copy);
  for (const each of screen) each.remove();
  return copy;
}

/**
 * Text of an SVG file of a picture, with its title and the labels around it on the page. Controls and pointer
 * marks are removed.
 */
export function pictureSvg(picture: SVGSVGElement, title: string): string {
  const copy = standaloneCopy(picture);
  const box = picture.getBoundingClientRect();
  const [width, height] = [Math.ceil(box.width), Math.ceil(box.height)];
  copy.setAttribute("width", `${width}`);
  copy.setAttribute("height", `${height}`);
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  copy.prepend(...canvasRects(picture));
  const text = (svg: Node): string => new XMLSerializer().serializeToString(svg);
  const legend = Array.from(picture.parentElement?.querySelectorAll(".legend span") ?? [], (each) => [text(standaloneCopy(each.querySelector("svg")!)), each.textContent!] as const);
  return resolveColors(renderPictureFile(text(copy), [width, height], title, picture.dataset, legend, document.documentElement.dataset.theme === "dark"), title, picture.ariaLabel!.replace(HINT, ""));
}

/** Replaces CSS variables of an SVG by their values, and adds a title and a description. */
export function resolveColors(svg: string, title: string, description = ""): string {
  const style = getComputedStyle(document.documentElement);
  const value = (_: string, name: string): string => style.getPropertyValue(name).trim().replaceAll('"', "'");
  return `${XML_DECLARATION}${svg.replaceAll(/var\((--[a-z-]+)\)/g, value).replace(">", () => ` role="img"><title>${escapeXml(title)}</title>${description && `<desc>${escapeXml(description)}</desc>`}`)}\n`;
}

/** PNG of a picture at twice its size, if that is not too wide. */
export async function renderPng(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  // Browsers do not draw wider images.
  const pixelRatio = Math.min(2, 16_000 / image.naturalWidth);
  [canvas.width, canvas.height] = [pixelRatio * image.naturalWidth, pixelRatio * image.naturalHeight];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("The browser cannot create a PNG of this size."))), "image/png"),
  );
}
