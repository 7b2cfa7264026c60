/**
 * Arithmetic of the model: matrix products, activations and additive scores, by a WebAssembly kernel (web/wasm/kernel.ts) or
 * in JavaScript. All matrices are in row-major order.
 */
import kernelBytes from "virtual:kernel";
import { decodeBase64 } from "./modelFile";

/** Matrix of parameters, in the memory of its kernel. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  /** Address in WebAssembly memory, in numbers; 0 in JavaScript. */
  readonly address: number;
  /** Values in JavaScript; empty in WebAssembly. */
  readonly values: Float32Array;
}

export interface Kernel {
  readonly name: "WebAssembly" | "JavaScript";
  /** Copies a matrix into the memory of the kernel. */
  store(values: Float32Array, rows: number, columns: number): Matrix;
  /** Products of a matrix with each of `numRows` vectors, one row each. */
  multiply(matrix: Matrix, vectors: Float32Array, numRows: number): Float32Array;
  /** Replaces numbers by their hyperbolic tangents. */
  tanh(values: Float32Array): void;
  /** Replaces numbers by σ(x) = 1 / (1 + e^−x). */
  sigmoid(values: Float32Array): void;
  /** Σ_a energy_a tanh(query_a + key_sa) of each position s, for one query. */
  additiveScores(query: Float32Array, keys: Float32Array, energy: Float32Array): Float32Array;
}

/** Kernel in JavaScript, for browsers that lack WebAssembly or SIMD, or forbid them. */
export const javascriptKernel: Kernel = {
  name: "JavaScript",
  store: (values, rows, columns) => ({ rows, columns, address: 0, values }),
  multiply({ rows, columns, values }, vectors, numRows) {
    const products = new Float32Array(numRows * rows);
    for (let vector = 0; vector < numRows; vector++) {
      for (let row = 0; row < rows; row++) {
        let sum = 0;
        for (let column = 0; column < columns; column++) sum += values[row * columns + column]! * vectors[vector * columns + column]!;
        products[vector * rows + row] = sum;
      }
    }
    return products;
  },
  tanh: (values) => values.forEach((value, index) => (values[index] = Math.tanh(value))),
  sigmoid: (values) => values.forEach((value, index) => (values[index] = 1 / (1 + Math.exp(-value)))),
  additiveScores(query, keys, energy) {
    const scores = new Float32Array(keys.length / query.length);
    for (let index = 0; index < keys.length; index++) {
      const unit = index % query.length;
      scores[(index - unit) / query.length]! += energy[unit]! * Math.tanh(query[unit]! + keys[index]!);
    }
    return scores;
  },
};

/** Functions of web/wasm/kernel.ts; addresses are in bytes. */
interface KernelExports {
  multiply(weights: number, inputs: number, outputs: number, numRows: number, numOutputs: number, numInputs: number): void;
  tanh(values: number, count: number): void;
  sigmoid(values: number, count: number): void;
  additiveScores(query: number, keys: number, energy: number, scores: number, numPositions: number, size: number): void;
}

const PAGE_SIZE = 65_536;
/** Rows are padded to a multiple of four numbers. */
const padded = (size: number): number => (size + 3) & ~3;

/** Kernel in WebAssembly: parameters are stored from the start of its memory, and each call copies its arguments behind them. */
class WasmKernel implements Kernel {
  readonly name = "WebAssembly";
  private used = 0;
  private numbers: Float32Array;

  constructor(
    private readonly memory: WebAssembly.Memory,
    private readonly functions: KernelExports,
  ) {
    this.numbers = new Float32Array(memory.buffer);
  }

  store(values: Float32Array, rows: number, columns: number): Matrix {
    const address = this.used;
    this.used += padded(rows) * padded(columns);
    this.reserve(0);
    this.copyRows(values, address, columns);
    return { rows, columns, address, values: new Float32Array() };
  }

  multiply({ rows, columns, address }: Matrix, vectors: Float32Array, numRows: number): Float32Array {
    const [height, width] = [padded(rows), padded(columns)];
    const outputs = this.used + numRows * width;
    this.reserve(numRows * (width + height));
    this.copyRows(vectors, this.used, columns);
    this.functions.multiply(4 * address, 4 * this.used, 4 * outputs, numRows, height, width);
    const products = new Float32Array(numRows * rows);
    for (let row = 0; row < numRows; row++) products.set(this.numbers.subarray(outputs + row * height, outputs + row * height + rows), row * rows);
    return products;
  }

  tanh(values: Float32Array): void {
    this.replace(values, this.functions.tanh);
  }

  sigmoid(values: Float32Array): void {
    this.replace(values, this.functions.sigmoid);
  }

  additiveScores(query: Float32Array, keys: Float32Array, energy: Float32Array): Float32Array {
    const [size, count] = [padded(query.length), keys.length / query.length];
    const [energyAt, keysAt] = [this.used + size, this.used + 2 * size];
    const scoresAt = keysAt + count * size;
    this.reserve((2 + count) * size + count);
    this.copyRows(query, this.used, query.length);
    this.copyRows(energy, energyAt, query.length);
    this.copyRows(keys, keysAt, query.length);
    this.functions.additiveScores(4 * this.used, 4 * keysAt, 4 * energyAt, 4 * scoresAt, count, size);
    return this.numbers.slice(scoresAt, scoresAt + count);
  }

  private replace(values: Float32Array, activation: (values: number, count: number) => void): void {
    this.reserve(padded(values.length));
    this.numbers.set(values, this.used);
    activation(4 * this.used, padded(values.length));
    values.set(this.numbers.subarray(this.used, this.used + values.length));
  }

  /** Copies rows to an address, padded with zeros. */
  private copyRows(values: Float32Array, address: number, columns: number): void {
    const width = padded(columns);
    if (width === columns) this.numbers.set(values, address);
    else {
      this.numbers.fill(0, address, address + (values.length / columns) * width);
      for (let row = 0; row * columns < values.length; row++) this.numbers.set(values.subarray(row * columns, (row + 1) * columns), address + row * width);
    }
  }

  /** Makes room for numbers behind the parameters. */
  private reserve(size: number): void {
    const missing = 4 * (this.used + size) - this.memory.buffer.byteLength;
    if (missing <= 0) return;
    // Twice as much, so that it rarely grows.
    this.memory.grow(Math.ceil((missing + this.memory.buffer.byteLength) / PAGE_SIZE));
    this.numbers = new Float32Array(this.memory.buffer);
  }
}

/** Kernel in WebAssembly if the browser allows it and has its SIMD instructions, otherwise in JavaScript. */
export async function createKernel(): Promise<Kernel> {
  try {
    const memory = new WebAssembly.Memory({ initial: 1 });
    const { instance } = await WebAssembly.instantiate(decodeBase64(kernelBytes), { env: { memory } });
    return new WasmKernel(memory, instance.exports as unknown as KernelExports);
  } catch {
    return javascriptKernel;
  }
}
