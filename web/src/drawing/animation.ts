// Animations: interpolation between frames, and animated SVG files (SMIL, without scripts).

import { labelInterval, isNth } from "./layout";
import { visibleSymbol } from "./symbols";

/** Points between two frames, n × 2. */
export function interpolatePoints(before: Float32Array, after: Float32Array, fraction: number): Float32Array {
  return before.map((value, index) => value + ((after[index] ?? value) - value) * fraction);
}

/** Bounds of all frames, with a margin. */
export function pointBounds(frames: Float32Array[]): [number, number, number, number] {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const plane of frames) {
    for (let index = 0; index + 1 < plane.length; index += 2) {
      left = Math.min(left, plane[index]!);
      right = Math.max(right, plane[index]!);
      top = Math.min(top, plane[index + 1]!);
      bottom = Math.max(bottom, plane[index + 1]!);
    }
  }
  if (left > right) return [-1, -1, 1, 1];
  const margin = 0.06 * Math.max(right - left, bottom - top, 1e-6);
  return [left - margin, top - margin, right + margin, bottom + margin];
}

/** Escapes a text for SVG; control characters, which XML forbids, are replaced. */
export function escapeXml(text: string): string {
  const named: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (sign) => named[sign]!).replace(/[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/g, "�");
}

/** Attention weights of one probe example during training. */
export interface AttentionAnimation {
  sources: string[];
  /** Output, weights (T × S) and caption of each frame. */
  frames: { target: string[]; weights: Float32Array; caption: string }[];
}

const [CELL, MAX_WIDTH] = [18, 860];
/** Width of a position number. */
const NUMBER_WIDTH = 34;

/** Each frame lasts `seconds`; the animation repeats. */
export function animatedAttentionSvg(animation: AttentionAnimation, seconds: number, color: string): string {
  const sources = animation.sources.length;
  const steps = Math.max(1, ...animation.frames.map((frame) => frame.target.length));
  // At most as wide as a page; numbers replace symbols in narrow cells.
  const cellWidth = Math.min(CELL, MAX_WIDTH / Math.max(1, sources));
  const interval = labelInterval(cellWidth, 10, NUMBER_WIDTH);
  const [left, top] = [70, interval > 1 ? 44 : 74];
  // At least as wide as the longest caption, at 7.4 per letter.
  const captionLength = Math.max(...animation.frames.map((frame) => frame.caption.length));
  const [width, height] = [Math.max(left + sources * cellWidth, 8 + 7.4 * captionLength) + 10, top + steps * CELL + 10];
  const length = animation.frames.length * seconds;
  const cells: string[] = [];
  for (let step = 0; step < steps; step++) {
    for (let source = 0; source < sources; source++) {
      const values = animation.frames.map(({ weights }) => (weights[step * sources + source] ?? 0).toFixed(2));
      if (values.every((value) => value === "0.00")) continue;
      cells.push(
        `<rect x="${+(left + source * cellWidth).toFixed(2)}" y="${top + step * CELL}" width="${+Math.max(0.9 * cellWidth, cellWidth - 1).toFixed(2)}" height="${CELL - 1}" opacity="${values.at(-1)}">` +
          `${animateAttribute("opacity", values, length)}</rect>`,
      );
    }
  }
  const heads = animation.sources.map((symbol, index) => {
    const x = +(left + (index + 0.5) * cellWidth).toFixed(2);
    if (interval > 1) return isNth(index, interval) ? `<text x="${x}" y="${top - 6}" text-anchor="middle">${index + 1}</text>` : "";
    return `<text x="${x}" y="${top - 6}" text-anchor="start" transform="rotate(-60 ${x} ${top - 6})">${escapeXml(visibleSymbol(symbol))}</text>`;
  });
  const frameGroups = animation.frames.map((frame, index) => {
    const lines = frame.target.map((symbol, step) => `<text x="${left - 6}" y="${top + step * CELL + 13}" text-anchor="end">${escapeXml(visibleSymbol(symbol))}</text>`);
    return `<g>${showDuringFrame(index, animation.frames.length, length)}<text x="8" y="16">${escapeXml(frame.caption)}</text>${lines.join("")}</g>`;
  });
  const edge = `<rect x="${left - 0.5}" y="${top - 0.5}" width="${+(sources * cellWidth + 1).toFixed(2)}" height="${steps * CELL + 1}" fill="none" stroke="#bbb"/>`;
  return svgDocument(width, height, `<g fill="${color}">${cells.join("")}</g>${edge}${heads.join("")}${frameGroups.join("")}`);
}

/** Animation of symbol embeddings in their plane. */
export function animatedEmbeddingSvg(labels: string[], frames: { plane: Float32Array; caption: string }[], seconds: number, color: string): string {
  const [left, top, right, bottom] = pointBounds(frames.map((frame) => frame.plane));
  const size = 480;
  const length = frames.length * seconds;
  const x = (value: number) => (((value - left) / (right - left)) * size).toFixed(1);
  const y = (value: number) => (size + 24 - ((value - top) / (bottom - top)) * size).toFixed(1);
  const symbols = labels.map((label, index) => {
    const values = frames.map(({ plane }) => `${x(plane[2 * index] ?? 0)} ${y(plane[2 * index + 1] ?? 0)}`);
    const translation = frames.length < 2 ? "" : `<animateTransform attributeName="transform" type="translate" values="${values.join(";")}" dur="${length}s" repeatCount="indefinite"/>`;
    return `<g transform="translate(${values.at(-1)})">${translation}<circle r="3" fill="${color}"/><text x="5" y="4">${escapeXml(visibleSymbol(label))}</text></g>`;
  });
  const captions = frames.map(
    (frame, index) => `<g>${showDuringFrame(index, frames.length, length)}<text x="8" y="16">${escapeXml(frame.caption)}</text></g>`,
  );
  return svgDocument(size + 40, size + 40, symbols.join("") + captions.join(""));
}

function animateAttribute(name: string, values: string[], length: number): string {
  if (values.length < 2) return "";
  return `<animate attributeName="${name}" values="${values.join(";")}" dur="${length}s" calcMode="discrete" repeatCount="indefinite"/>`;
}

/** Shows a group only during its frame. */
function showDuringFrame(index: number, count: number, length: number): string {
  const values = Array.from({ length: count }, (_, other) => (other === index ? "inline" : "none"));
  return animateAttribute("display", values, length);
}

function svgDocument(width: number, height: number, inside: string): string {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
    `font-family="ui-monospace, monospace" font-size="12"><rect width="${width}" height="${height}" fill="#fff"/>${inside}</svg>`
  );
}
