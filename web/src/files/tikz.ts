/** Heat map as a TikZ picture. */
import { maxMagnitude, row, type Grid } from "../data/arrays";
import { labelInterval, isNth } from "../drawing/layout";
import { scaleByRow, MAX_UNSHIFTED_POSITIONS, chooseScale } from "../drawing/raster";
import { formatDecimal } from "../drawing/scales";
import { UNKNOWN_NOTE, visibleSymbol } from "../drawing/symbols";

const SPECIAL: Record<string, string> = {
  "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "#": "\\#", "%": "\\%", "_": "\\_",
  "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "␣": "\\textvisiblespace{}", "<": "\\textless{}", ">": "\\textgreater{}",
  // Straight quotation marks in every font; no ligatures of hyphens.
  "|": "\\textbar{}", '"': "\\texttt{\\char34}", "'": "\\textquotesingle{}", "`": "\\textasciigrave{}", "-": "-{}", ",": ",{}",
  "⟨": "$\\langle$", "⟩": "$\\rangle$", "−": "$-$", "→": "$\\rightarrow$", "·": "$\\cdot$",
};

/** Escapes a text for LaTeX. */
const escapedText = (text: string): string => [...text].map((letter) => SPECIAL[letter] ?? letter).join("");
export const escapeLatex = (symbol: string): string => escapedText(visibleSymbol(symbol));

/** Millimeters: maximum cell, picture, and minimum cell that is labeled by its symbol. */
const [MAX_CELL, MAX_WIDTH, MIN_LABELED_CELL] = [4, 160, 2.5];
/** Cell size so that all cells fit, and interval between labels; numbers replace symbols in small cells. */
const cellAndInterval = (count: number, label: number): [number, number] => {
  const cell = Math.min(MAX_CELL, MAX_WIDTH / count);
  return [+cell.toFixed(4), labelInterval(cell, MIN_LABELED_CELL, label)];
};

interface Marks {
  readonly labels?: readonly (readonly number[])[];
  readonly unknown?: readonly number[];
  readonly axisTitles?: readonly [source: string, output: string];
  readonly colorKey?: string;
}

/**
 * Rows are steps, columns are positions; weights below 0.005 are omitted. Signed values are red (positive) and blue (negative),
 * scaled by the maximum magnitude; small weights are scaled by row. Nonzero numbers of `labels` are printed in their cells. Symbols
 * at `unknown` positions are underlined. `colorKey` describes the colors. Requires XeLaTeX or LuaLaTeX for non-Latin scripts.
 */
export function tikzHeatMap(weights: Grid, target: readonly string[], source: readonly string[], { labels = [], unknown = [], axisTitles = ["source", "output"], colorKey }: Marks = {}): string {
  const signed = weights.values.some((value) => value < 0);
  // Small weights are scaled by row, or they would be invisible.
  const scaledByRow = !signed && colorKey === undefined && chooseScale(weights) === "row";
  const shades = scaledByRow ? scaleByRow(weights, weights.columns > MAX_UNSHIFTED_POSITIONS) : weights;
  const maximum = signed ? maxMagnitude(weights) : 1;
  const [[cellWidth, columnInterval], [cellHeight, rowInterval]] = [cellAndInterval(weights.columns, 8), cellAndInterval(weights.rows, 4)];
  const lines = [
    "% \\usepackage{tikz}; other scripts than Latin need XeLaTeX or LuaLaTeX.",
    `\\begin{tikzpicture}[x=${cellWidth}mm, y=-${cellHeight}mm, every node/.style={font=\\footnotesize}]`,
    `  \\definecolor{weight}{RGB}{${signed ? "156,17,39" : "8,48,107"}}`,
    ...(signed ? ["  \\definecolor{less}{RGB}{27,79,145}"] : []),
  ];
  for (let step = 0; step < weights.rows; step++) {
    row(shades, step).forEach((value, position) => {
      const shade = Math.round(100 * Math.min(1, Math.abs(value) / maximum));
      if (shade > 0) lines.push(`  \\fill[${value < 0 ? "less" : "weight"}!${shade}] (${position},${step}) rectangle ++(1,1);`);
      const number = labels[step]?.[position];
      if (number) lines.push(`  \\node[${shade > 50 ? "white" : "black"}] at (${position}.5,${step}.5) {${number}};`);
    });
  }
  lines.push(`  \\draw[gray] (0,0) rectangle (${weights.columns},${weights.rows});`);
  source.forEach((symbol, position) => isNth(position, columnInterval) && lines.push(columnInterval > 1 ? `  \\node[anchor=south] at (${position}.5,0) {${position + 1}};` : `  \\node[rotate=60, anchor=west] at (${position}.5,-0.2) {${unknown.includes(position) ? `\\underline{${escapeLatex(symbol)}}` : escapeLatex(symbol)}};`));
  target.forEach((symbol, step) => isNth(step, rowInterval) && lines.push(`  \\node[anchor=east] at (0,${step}.5) {${rowInterval > 1 ? step + 1 : escapeLatex(symbol)}};`));
  const keyText = [colorKey ?? (signed ? `red: positive, blue: negative; strongest: ${formatDecimal(maximum)}` : `darkest: ${scaledByRow ? "the row's maximum" : 1}`), unknown.length ? `underlined: ${UNKNOWN_NOTE}` : ""].filter(Boolean).join("; ");
  const [above, left] = axisTitles.map(escapedText);
  lines.push(
    `  \\node[anchor=south west] at (0,0 |- current bounding box.north) {${above} $\\rightarrow$};`,
    `  \\node[rotate=90, anchor=south east] at (current bounding box.west |- 0,0) {$\\leftarrow$ ${left}};`,
    ...(keyText ? [`  \\node[anchor=north west] at (0,0 |- current bounding box.south) {${escapedText(keyText)}};`] : []),
  );
  return [...lines, "\\end{tikzpicture}", ""].join("\n");
}
