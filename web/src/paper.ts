/** Pictures as files: an SVG with everything it needs in itself, and a PNG of it. */

// What the page's style sheets give a drawn element; a file has to say it itself.
const TAKEN = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline", "unicode-bidi", "visibility",
  "display", "white-space", "paint-order",
] as const;
const SPACE = "http://www.w3.org/2000/svg";

function settle(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  for (const name of TAKEN) {
    const value = style.getPropertyValue(name);
    if (value) to.setAttribute(name, value);
  }
  to.removeAttribute("class");
  to.removeAttribute("style");
  for (const place of Array.from(from.children).keys()) {
    const [inner, copy] = [from.children[place], to.children[place]];
    if (inner && copy) settle(inner, copy);
  }
}

/** The cells that a canvas beside the picture paints, as they are on the screen: no program draws them blurred. */
function painted(picture: SVGSVGElement): SVGElement[] {
  const canvases = [...(picture.parentElement?.querySelectorAll<HTMLCanvasElement>(":scope > canvas") ?? [])];
  return canvases.map((canvas) => {
    const image = document.createElementNS(SPACE, "image");
    const [here, there] = [picture.getBoundingClientRect(), canvas.getBoundingClientRect()];
    const told = { x: there.left - here.left, y: there.top - here.top, width: there.width, height: there.height };
    for (const [name, value] of Object.entries(told)) image.setAttribute(name, `${value}`);
    image.setAttribute("href", canvas.toDataURL("image/png"));
    return image;
  });
}

/** A picture of the page as the text of an SVG file. Text stays text; controls and the pointer's marks are left out. */
export function svgText(picture: SVGSVGElement): string {
  const copy = picture.cloneNode(true) as SVGSVGElement;
  settle(picture, copy);
  for (const each of copy.querySelectorAll("[data-screen]")) each.remove();
  const box = picture.getBoundingClientRect();
  const [width, height] = [Math.ceil(box.width), Math.ceil(box.height)];
  copy.setAttribute("xmlns", SPACE);
  copy.setAttribute("width", `${width}`);
  copy.setAttribute("height", `${height}`);
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const ground = document.createElementNS(SPACE, "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  copy.prepend(ground, ...painted(picture));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

/** The picture as a PNG, twice as fine as on the screen. */
export async function png(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * image.naturalWidth, 2 * image.naturalHeight];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("The browser makes no PNG of this size."))), "image/png"),
  );
}
