/**
 * Kernel of the model page in AssemblyScript: matrix products, activations and additive attention scores, four numbers at
 * a time. Addresses are in bytes. Rows are padded with zeros to a multiple of four numbers. web/wasmKernel.ts compiles it.
 */

/** Sum of the four numbers of a vector. */
// @ts-ignore: decorator
@inline
function laneSum(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

/** a + b · c */
// @ts-ignore: decorator
@inline
function addProduct(a: v128, b: v128, c: v128): v128 {
  return f32x4.add(a, f32x4.mul(b, c));
}

/** Four outputs of one row. */
function multiplyRow(weights: usize, input: usize, output: usize, width: usize): void {
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (let i: usize = 0; i < width; i += 16) {
    const x = v128.load(input + i);
    const w = weights + i;
    a = addProduct(a, x, v128.load(w));
    b = addProduct(b, x, v128.load(w + width));
    c = addProduct(c, x, v128.load(w + 2 * width));
    d = addProduct(d, x, v128.load(w + 3 * width));
  }
  f32.store(output, laneSum(a));
  f32.store(output + 4, laneSum(b));
  f32.store(output + 8, laneSum(c));
  f32.store(output + 12, laneSum(d));
}

/** Two outputs of three rows. */
function multiplyThreeRows(weights: usize, input: usize, output: usize, width: usize, height: usize): void {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, b0 = a0, b1 = a0, b2 = a0;
  for (let i: usize = 0; i < width; i += 16) {
    const x = input + i;
    const w0 = v128.load(weights + i), w1 = v128.load(weights + width + i);
    const x0 = v128.load(x), x1 = v128.load(x + width), x2 = v128.load(x + 2 * width);
    a0 = addProduct(a0, x0, w0);
    b0 = addProduct(b0, x0, w1);
    a1 = addProduct(a1, x1, w0);
    b1 = addProduct(b1, x1, w1);
    a2 = addProduct(a2, x2, w0);
    b2 = addProduct(b2, x2, w1);
  }
  storePair(output, a0, b0);
  storePair(output + height, a1, b1);
  storePair(output + 2 * height, a2, b2);
}

/** Two outputs of five rows: a beam of five. */
function multiplyFiveRows(weights: usize, input: usize, output: usize, width: usize, height: usize): void {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, a4 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0;
  for (let i: usize = 0; i < width; i += 16) {
    const x = input + i;
    const w0 = v128.load(weights + i), w1 = v128.load(weights + width + i);
    const x0 = v128.load(x), x1 = v128.load(x + width), x2 = v128.load(x + 2 * width);
    a0 = addProduct(a0, x0, w0);
    b0 = addProduct(b0, x0, w1);
    a1 = addProduct(a1, x1, w0);
    b1 = addProduct(b1, x1, w1);
    a2 = addProduct(a2, x2, w0);
    b2 = addProduct(b2, x2, w1);
    const x3 = v128.load(x + 3 * width), x4 = v128.load(x + 4 * width);
    a3 = addProduct(a3, x3, w0);
    b3 = addProduct(b3, x3, w1);
    a4 = addProduct(a4, x4, w0);
    b4 = addProduct(b4, x4, w1);
  }
  storePair(output, a0, b0);
  storePair(output + height, a1, b1);
  storePair(output + 2 * height, a2, b2);
  storePair(output + 3 * height, a3, b3);
  storePair(output + 4 * height, a4, b4);
}

// @ts-ignore: decorator
@inline
function storePair(output: usize, a: v128, b: v128): void {
  f32.store(output, laneSum(a));
  f32.store(output + 4, laneSum(b));
}

/** outputs[r][o] = Σ_i weights[o][i] inputs[r][i]; numbers of outputs and inputs are multiples of four. */
export function multiply(weights: usize, inputs: usize, outputs: usize, numRows: i32, numOutputs: i32, numInputs: i32): void {
  const width = <usize>numInputs << 2, height = <usize>numOutputs << 2;
  let row = numRows;
  while (row > 0) {
    const rows = row >= 5 ? 5 : row >= 3 ? 3 : 1;
    let w = weights;
    for (let output = outputs; output < outputs + height; ) {
      if (rows == 1) {
        multiplyRow(w, inputs, output, width);
        w += 4 * width;
        output += 16;
      } else {
        if (rows == 5) multiplyFiveRows(w, inputs, output, width, height);
        else multiplyThreeRows(w, inputs, output, width, height);
        w += 2 * width;
        output += 8;
      }
    }
    inputs += <usize>rows * width;
    outputs += <usize>rows * height;
    row -= rows;
  }
}

/** Exponential function, by a polynomial on |r| ≤ ln 2 / 2 (coefficients of Cephes, expf). */
// @ts-ignore: decorator
@inline
function exp(x: v128): v128 {
  const clamped = f32x4.max(f32x4.min(x, f32x4.splat(88)), f32x4.splat(-87));
  const n = f32x4.nearest(f32x4.mul(clamped, f32x4.splat(1.44269504088896341)));
  const r = addProduct(addProduct(clamped, n, f32x4.splat(-0.693359375)), n, f32x4.splat(2.12194440e-4));
  let p = addProduct(f32x4.splat(1.3981999507e-3), r, f32x4.splat(1.9875691500e-4));
  p = addProduct(f32x4.splat(8.3334519073e-3), r, p);
  p = addProduct(f32x4.splat(4.1665795894e-2), r, p);
  p = addProduct(f32x4.splat(1.6666665459e-1), r, p);
  p = addProduct(f32x4.splat(5.0000001201e-1), r, p);
  const y = f32x4.add(f32x4.splat(1), addProduct(r, f32x4.mul(r, r), p));
  return f32x4.mul(y, i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23));
}

/** tanh x = 1 − 2 / (1 + e^2x) */
// @ts-ignore: decorator
@inline
function tanh4(x: v128): v128 {
  const one = f32x4.splat(1), two = f32x4.splat(2);
  return f32x4.sub(one, f32x4.div(two, f32x4.add(one, exp(f32x4.mul(two, x)))));
}

/** Replaces numbers by their hyperbolic tangents. */
export function tanh(values: usize, count: i32): void {
  for (const end = values + (<usize>count << 2); values < end; values += 16) v128.store(values, tanh4(v128.load(values)));
}

/** Replaces numbers by σ(x) = 1 / (1 + e^−x). */
export function sigmoid(values: usize, count: i32): void {
  const one = f32x4.splat(1);
  for (const end = values + (<usize>count << 2); values < end; values += 16) {
    v128.store(values, f32x4.div(one, f32x4.add(one, exp(f32x4.neg(v128.load(values))))));
  }
}

/** scores[s] = Σ_a energy[a] tanh(query[a] + keys[s][a]) */
export function additiveScores(query: usize, keys: usize, energy: usize, scores: usize, numPositions: i32, size: i32): void {
  const width = <usize>size << 2;
  for (let s = 0; s < numPositions; s++) {
    let sum = f32x4.splat(0);
    for (let a: usize = 0; a < width; a += 16) {
      sum = addProduct(sum, v128.load(energy + a), tanh4(f32x4.add(v128.load(query + a), v128.load(keys + a))));
    }
    f32.store(scores, laneSum(sum));
    scores += 4;
    keys += width;
  }
}
