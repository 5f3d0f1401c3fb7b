// Runs a model in ONNX Runtime Web, on WebAssembly. `node web_runs.mjs JOB`, where JOB is a JSON file that
// `web_runs.py` writes. The answer goes to the file that the job names, since libraries may write to standard output.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const job = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

// In the working folder of the user or above, in NODE_PATH, or installed with `npm install -g`.
function library() {
  const above = path.resolve(path.dirname(process.execPath), '../lib/node_modules');
  for (const folder of [job.folder, above]) {
    try {
      const found = createRequire(path.join(folder, 'any.js'));
      return found(folder === above ? path.join(above, job.package) : job.package);
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  return null;
}

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, int8: Int8Array, uint8: Uint8Array,
  int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array,
  uint64: BigUint64Array, bool: Uint8Array,
};

function tensor(ort, { type, dims, data, file }) {
  if (type === 'string') return new ort.Tensor(type, data, dims);
  const bytes = fs.readFileSync(file);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return new ort.Tensor(type, new ARRAYS[type](buffer), dims);
}

function written(value, file) {
  const found = { type: value.type, dims: value.dims };
  if (value.type === 'string') return { ...found, data: value.data };
  fs.writeFileSync(file, Buffer.from(value.data.buffer, value.data.byteOffset, value.data.byteLength));
  return { ...found, file };
}

const messageOf = (error) => String(error?.message ?? error);

async function answer() {
  const ort = library();
  if (ort === null) return { missing: true };
  // A page that is not isolated from others has no threads.
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'fatal';
  const found = { version: ort.env.versions.web ?? ort.env.versions.common, runs: [] };
  let session;
  try {
    session = await ort.InferenceSession.create(fs.readFileSync(job.model), { executionProviders: ['wasm'] });
  } catch (error) {
    return { ...found, invalid: messageOf(error) };
  }
  for (const [number, feed] of job.feeds.entries()) {
    try {
      const inputs = Object.fromEntries(Object.entries(feed).map(([name, value]) => [name, tensor(ort, value)]));
      const outputs = await session.run(inputs);
      const names = Object.entries(outputs);
      found.runs.push(names.map(([name, value], place) => [name, written(value, `${job.outputs}/${number}.${place}`)]));
    } catch (error) {
      found.runs.push(messageOf(error));
    }
  }
  return found;
}

fs.writeFileSync(job.answer, JSON.stringify(await answer()));
process.exit(0); // a session may keep the process alive
