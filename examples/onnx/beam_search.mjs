// Beam search over a network that `pellucid export --onnx` has written, with onnxruntime-node:
//
//   npm install onnxruntime-node
//   node beam_search.mjs DIR FILE [BEAM_SIZE] > outputs.txt
//
// FILE has one source per line. Outputs are ranked by their log-probability; pellucid.json may ask for length
// normalization, a coverage penalty, limits by ratio, features or copying, which beam_search.py beside it shows.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as ort from 'onnxruntime-node';

const BOS = 1;
const EOS = 2;
const UNK = 3;
const SEPARATORS = { characters: '', subwords: '', words: ' ', whole: '\t' };

/** Returns an int64 tensor of one dimension or two. */
const integers = (values, shape = [values.length]) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), shape);

/** An exported network. */
export class Model {
  static async load(folder) {
    const model = new Model();
    model.settings = JSON.parse(readFileSync(join(folder, 'pellucid.json'), 'utf8'));
    // Weights of 8 bits are dequantized once, when the graph is loaded.
    const options = { intraOpNumThreads: 1, extra: { session: { disable_quant_qdq: '1' } } };
    model.encoder = await ort.InferenceSession.create(join(folder, 'encoder.onnx'), options);
    model.step = await ort.InferenceSession.create(join(folder, 'decoder_step.onnx'), options);
    model.ids = new Map(model.settings.source.symbols.map((symbol, index) => [symbol, index + UNK + 1]));
    model.states = model.step.outputNames.filter((name) => name.startsWith('next_')).map((name) => name.slice(5));
    return model;
  }

  /** Returns the ids of a text. */
  encode(text) {
    const { kind, normalization } = this.settings.source;
    const normal = normalization === 'none' ? text : text.normalize(normalization.toUpperCase());
    const split = { characters: (t) => [...t], words: (t) => t.split(/\s+/u).filter(Boolean), whole: (t) => [t] };
    const symbols = normal === '' ? [] : (split[kind] ?? ((t) => t.split(kind)))(normal);
    return symbols.map((symbol) => this.ids.get(symbol) ?? UNK);
  }

  /** Returns the text of the best output of a source, and its log-probability. */
  async decode(text, beamSize = this.settings.search.beam_size) {
    const ids = this.encode(text);
    if (!ids.length) return { text: '', logProbability: 0 };
    const lengths = integers([ids.length]);
    let values = { ...(await this.encoder.run({ ids: integers(ids, [1, ids.length]), lengths })), lengths };
    let beam = [{ ids: [], total: 0 }];
    let best = null;
    let free = beamSize; // a finished output takes its place in the beam with it
    for (let length = 0; ; length += 1) {
      const symbols = integers(beam.map((hypothesis) => hypothesis.ids.at(-1) ?? BOS));
      const inputs = Object.fromEntries(this.step.inputNames.map((name) => [name, name === 'symbols' ? symbols : values[name]]));
      const outputs = await this.step.run(inputs);
      const extensions = this.extend(beam, outputs.log_probabilities, length).slice(0, free);
      const ended = extensions.filter(({ ids }) => ids.at(-1) === EOS);
      const kept = extensions.filter(({ ids }) => ids.at(-1) !== EOS);
      free -= ended.length;
      for (const output of ended) if (best === null || output.total > best.total) best = output;
      if (length === this.settings.search.max_length) best ??= beam[0];
      if (!kept.length || (best && best.total >= kept[0].total) || length === this.settings.search.max_length) break;
      beam = kept;
      values = { ...values, ...this.selectRows(outputs, kept.map(({ parent }) => parent)) };
    }
    const { kind, symbols } = this.settings.target;
    const written = best.ids.filter((id) => id !== EOS).map((id) => symbols[id - UNK - 1]);
    return { text: written.join(SEPARATORS[kind] ?? kind), logProbability: best.total };
  }

  /** Returns all possible extensions of the hypotheses, the most probable first. */
  extend(beam, { data, dims: [, width] }, length) {
    const extensions = [];
    for (const [parent, { ids, total }] of beam.entries()) {
      for (let symbol = 0; symbol < width; symbol += 1) {
        const sum = Math.fround(total + data[parent * width + symbol]);
        const isEarly = symbol === EOS && length < this.settings.search.min_length;
        if (sum > -Infinity && !isEarly) extensions.push({ ids: [...ids, symbol], total: sum, parent });
      }
    }
    return extensions.sort((one, other) => other.total - one.total);
  }

  /** Returns the state of the parents of the next hypotheses. */
  selectRows(outputs, parents) {
    const select = (tensor) => {
      const size = tensor.data.length / tensor.dims[0];
      const data = new Float32Array(parents.length * size);
      parents.forEach((row, index) => data.set(tensor.data.subarray(row * size, (row + 1) * size), index * size));
      return new ort.Tensor('float32', data, [parents.length, ...tensor.dims.slice(1)]);
    };
    return Object.fromEntries(this.states.map((name) => [name, select(outputs[`next_${name}`])]));
  }
}

const [folder, file, beamSize] = process.argv.slice(2);
const model = await Model.load(folder);
for (const line of readFileSync(file, 'utf8').replace(/\r?\n$/u, '').split(/\r?\n/u)) {
  const output = await model.decode(line, beamSize ? Number(beamSize) : undefined);
  process.stdout.write(`${output.text}\n`);
}
