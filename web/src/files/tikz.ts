/** A heat map and its labels as TikZ, to stand in a paper. */
import { maxMagnitude, row, type Grid } from "../data/arrays";
import { labelInterval, isNth } from "../drawing/layout";
import { scaleByRow, MAX_UNSHIFTED_POSITIONS, chooseScale } from "../drawing/raster";
import { formatDecimal } from "../drawing/scales";
import { UNKNOWN_NOTE, visibleSymbol } from "../drawing/symbols";

const SPECIAL: Record<string, string> = {
  "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "#": "\\#", "%": "\\%", "_": "\\_",
  "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "␣": "\\textvisiblespace{}", "<": "\\textless{}", ">": "\\textgreater{}",
  // Straight in every font, and joined to no other letter: -- is no dash.
  "|": "\\textbar{}", '"': "\\texttt{\\char34}", "'": "\\textquotesingle{}", "`": "\\textasciigrave{}", "-": "-{}", ",": ",{}",
  "⟨": "$\\langle$", "⟩": "$\\rangle$", "−": "$-$", "→": "$\\rightarrow$", "·": "$\\cdot$",
};

/** A text as LaTeX prints it, and a symbol, whose blanks are seen. */
const escapedText = (text: string): string => [...text].map((letter) => SPECIAL[letter] ?? letter).join("");
export const escapeLatex = (symbol: string): string => escapedText(visibleSymbol(symbol));

/** Millimetres of a cell, of a picture, and of a cell that has room for a symbol. */
const [CELL, PAPER, LEAST] = [4, 160, 2.5];
/** How large a cell is so that all fit, and every so many of them carry a label: numbers where symbols have no room. */
const fitted = (count: number, label: number): [number, number] => {
  const cell = Math.min(CELL, PAPER / count);
  return [+cell.toFixed(4), labelInterval(cell, LEAST, label)];
};

interface Marks {
  readonly told?: readonly (readonly number[])[];
  readonly unknown?: readonly number[];
  readonly sides?: readonly [across: string, down: string];
  readonly key?: string;
}

/**
 * Rows downwards, columns across; a weight below 0.005 is not drawn. Where some are below zero, red is above it and blue below,
 * against the farthest; where all are small, each row is drawn against its greatest. Of `told` each number that is not zero stands in its cell. What is `unknown` of what is read is underlined;
 * the sides are called as `sides` says, and `key` tells what the colors are. Other scripts need XeLaTeX or LuaLaTeX.
 */
export function tikzHeatMap(weights: Grid, writes: readonly string[], reads: readonly string[], { told = [], unknown = [], sides = ["source", "output"], key }: Marks = {}): string {
  const signed = weights.values.some((value) => value < 0);
  // Where all are small, each row against its greatest: against 1 nothing would be seen.
  const faint = !signed && key === undefined && chooseScale(weights) === "row";
  const drawn = faint ? scaleByRow(weights, weights.columns > MAX_UNSHIFTED_POSITIONS) : weights;
  const most = signed ? maxMagnitude(weights) : 1;
  const [[wide, across], [high, down]] = [fitted(weights.columns, 8), fitted(weights.rows, 4)];
  const lines = [
    "% \\usepackage{tikz}; other scripts than Latin need XeLaTeX or LuaLaTeX.",
    `\\begin{tikzpicture}[x=${wide}mm, y=-${high}mm, every node/.style={font=\\footnotesize}]`,
    `  \\definecolor{weight}{RGB}{${signed ? "156,17,39" : "8,48,107"}}`,
    ...(signed ? ["  \\definecolor{less}{RGB}{27,79,145}"] : []),
  ];
  for (let step = 0; step < weights.rows; step++) {
    row(drawn, step).forEach((value, position) => {
      const share = Math.round(100 * Math.min(1, Math.abs(value) / most));
      if (share > 0) lines.push(`  \\fill[${value < 0 ? "less" : "weight"}!${share}] (${position},${step}) rectangle ++(1,1);`);
      const number = told[step]?.[position];
      if (number) lines.push(`  \\node[${share > 50 ? "white" : "black"}] at (${position}.5,${step}.5) {${number}};`);
    });
  }
  lines.push(`  \\draw[gray] (0,0) rectangle (${weights.columns},${weights.rows});`);
  reads.forEach((symbol, position) => isNth(position, across) && lines.push(across > 1 ? `  \\node[anchor=south] at (${position}.5,0) {${position + 1}};` : `  \\node[rotate=60, anchor=west] at (${position}.5,-0.2) {${unknown.includes(position) ? `\\underline{${escapeLatex(symbol)}}` : escapeLatex(symbol)}};`));
  writes.forEach((symbol, step) => isNth(step, down) && lines.push(`  \\node[anchor=east] at (0,${step}.5) {${down > 1 ? step + 1 : escapeLatex(symbol)}};`));
  const keyed = [key ?? (signed ? `red: positive, blue: negative; strongest: ${formatDecimal(most)}` : `darkest: ${faint ? "the row's maximum" : 1}`), unknown.length ? `underlined: ${UNKNOWN_NOTE}` : ""].filter(Boolean).join("; ");
  const [above, beside] = sides.map(escapedText);
  lines.push(
    `  \\node[anchor=south west] at (0,0 |- current bounding box.north) {${above} $\\rightarrow$};`,
    `  \\node[rotate=90, anchor=south east] at (current bounding box.west |- 0,0) {$\\leftarrow$ ${beside}};`,
    ...(keyed ? [`  \\node[anchor=north west] at (0,0 |- current bounding box.south) {${escapedText(keyed)}};`] : []),
  );
  return [...lines, "\\end{tikzpicture}", ""].join("\n");
}
