/** Models in the page: settings, symbols and parameters, as `pellucid export --html` writes them (pellucid/export/web_page.py). */

export const MODEL_FORMAT = 2;

/** Settings that the model reads, with the names of the run (pellucid/config/settings.py). */
export interface ModelSettings {
  readonly data: { readonly source_symbols: string; readonly target_symbols: string; readonly source_normalization: "nfc" | "nfd" | "none"; readonly max_sequence_length: number };
  readonly encoder: {
    readonly cell: "gru" | "lstm";
    readonly hidden_size: number;
    readonly num_layers: number;
    readonly merge: "concatenate" | "sum" | "product";
    readonly feature_merge: "prefix" | "sum";
    readonly residual: boolean;
  };
  readonly attention: { readonly type: string; readonly num_heads: number };
  readonly decoder: {
    readonly order: "attend-then-step" | "step-then-attend";
    readonly cell: "gru" | "lstm";
    readonly hidden_size: number;
    readonly num_layers: number;
    readonly init_hidden: "zero" | "final" | "mean";
    readonly embedding: string;
    readonly output_layer_inputs: "state" | "context" | "state-and-context";
    readonly residual: boolean;
    readonly pointer_generator: boolean;
  };
  readonly search: {
    readonly max_length: number;
    readonly min_length: number;
    readonly max_length_ratio: number;
    readonly max_length_offset: number;
    readonly min_length_ratio: number;
    readonly min_length_offset: number;
    readonly beam_size: number;
    readonly length_normalization: "none" | "average" | "gnmt";
    readonly length_penalty_alpha: number;
    readonly coverage_penalty: number;
  };
}

/** One array of parameters. */
export interface StoredArray {
  readonly name: string;
  readonly shape: readonly number[];
  readonly kind: Precision;
}

export type Precision = "float32" | "float16" | "int8";

/** One model of the page. */
export interface StoredModel {
  readonly name: string;
  readonly task: string;
  readonly settings: ModelSettings;
  readonly source_symbols: readonly string[];
  readonly feature_symbols: readonly string[];
  readonly target_symbols: readonly string[];
  readonly arrays: readonly StoredArray[];
  /** Parameters: bytes of all arrays, compressed with raw deflate, in base64. */
  readonly parameters: string;
}

/** Former names of settings, in models of format 1 (pellucid/config/renamed_settings.py), and their present names. */
const RENAMED_SETTINGS = { encoder: { features: "feature_merge" }, decoder: { output: "output_layer_inputs" } } as const;

/** A model of format 1 in the present format: its settings have other names. */
export function withCurrentNames(model: StoredModel): StoredModel {
  const settings: Record<string, Record<string, unknown>> = { ...(model.settings as unknown as Record<string, Record<string, unknown>>) };
  for (const [section, names] of Object.entries<Readonly<Record<string, string>>>(RENAMED_SETTINGS)) {
    settings[section] = Object.fromEntries(Object.entries(settings[section]!).map(([name, value]) => [names[name] ?? name, value]));
  }
  return { ...model, settings: settings as unknown as ModelSettings };
}

/** Name and values of all arrays. */
export type ParameterArrays = ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;

/** Decompresses and decodes the parameters of a model. */
export async function readParameters(model: StoredModel): Promise<ParameterArrays> {
  const stream = new Response(decodeBase64(model.parameters)).body!.pipeThrough(new DecompressionStream("deflate-raw"));
  return decodeArrays(model.arrays, new Uint8Array(await new Response(stream).arrayBuffer()));
}

interface Base64Decoder {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Bytes of base64: by the browser, or for those before 2025 by a loop. An iterator over millions of letters takes half a second. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const decoder = Uint8Array as typeof Uint8Array & Base64Decoder;
  if (decoder.fromBase64) return decoder.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = letters.charCodeAt(index);
  return bytes;
}

/** Decodes arrays from their bytes. Throws if there are too few or too many. */
export function decodeArrays(arrays: readonly StoredArray[], bytes: Uint8Array): ParameterArrays {
  let at = 0;
  const take = (size: number): Uint8Array => bytes.subarray(at, (at += size));
  const decoded = arrays.map(({ name, shape, kind }) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = kind === "int8" ? decodeInt8(take, count, shape[0]!) : kind === "float16" ? decodeFloat16(take(2 * count)) : decodeFloat32(take(4 * count));
    return [name, { shape, values }] as const;
  });
  if (at !== bytes.length) throw new Error(`the parameters have ${bytes.length} bytes instead of ${at}`);
  return new Map(decoded);
}

/** The bytes of numbers are in planes: first those with the sign, last those with the lowest bits. */
function decodeFloat32(planes: Uint8Array): Float32Array {
  const count = planes.length / 4;
  const bits = new Uint32Array(count);
  for (let index = 0; index < count; index++) {
    bits[index] = (planes[index]! << 24) | (planes[count + index]! << 16) | (planes[2 * count + index]! << 8) | planes[3 * count + index]!;
  }
  return new Float32Array(bits.buffer);
}

function decodeFloat16(planes: Uint8Array): Float32Array {
  const values = new Float32Array(planes.length / 2);
  for (let index = 0; index < values.length; index++) values[index] = halfToNumber((planes[index]! << 8) | planes[values.length + index]!);
  return values;
}

/** Number of a float16 (IEEE 754 binary16). */
function halfToNumber(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** Integers of one row have the same scale. The scales of all rows come first. */
function decodeInt8(take: (size: number) => Uint8Array, count: number, rows: number): Float32Array {
  const scales = decodeFloat32(take(4 * rows));
  const integers = new Int8Array(take(count).slice().buffer);
  const values = new Float32Array(count);
  const size = count / rows;
  for (let row = 0; row < rows; row++) {
    for (let index = row * size; index < (row + 1) * size; index++) values[index] = integers[index]! * scales[row]!;
  }
  return values;
}
