/** Geometry of the monotone alignment of an output. */
import type { IndexRange } from "./layout";

/** Source positions [start, stop) and steps [start, stop) of a chunk. */
export type Chunk = readonly [number, number, number, number];

export interface ChunkBox {
  readonly columns: IndexRange;
  readonly rows: IndexRange;
}

/** Chunks with source positions and steps, within the shown ranges; insertions and deletions have no box. */
export function chunkBoxes(chunks: readonly Chunk[], columns: IndexRange, rows: IndexRange): ChunkBox[] {
  return chunks.flatMap(([first, stop, top, bottom]) => {
    const box = {
      columns: { from: Math.max(first, columns.from), to: Math.min(stop, columns.to) },
      rows: { from: Math.max(top, rows.from), to: Math.min(bottom, rows.to) },
    };
    return box.columns.to > box.columns.from && box.rows.to > box.rows.from ? [box] : [];
  });
}

/** Pairs of a source position and a step that are in one chunk. */
export function chunkLinks(chunks: readonly Chunk[]): { position: number; step: number }[] {
  return chunks.flatMap(([first, stop, top, bottom]) =>
    Array.from({ length: Math.max(0, stop - first) * Math.max(0, bottom - top) }, (_, at) => ({ position: first + (at % (stop - first)), step: top + Math.floor(at / (stop - first)) })),
  );
}
