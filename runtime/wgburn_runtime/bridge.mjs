// WebGPU objects under integer ids, driven by frames of integers that Python sends.
//
// Owns: adapters, devices, buffers, pipelines, bind groups, the ring of mapped buffers, error scopes.
// Must not know: tensors, what a program computes, anything of Python beyond its buffers.
//
// Python chooses every id and checks what can be checked without a GPU. What only the browser knows
// (it validates asynchronously) comes back through `onError` and `onLost`, which push into Python, so
// that Python never has to ask.

const MAP_READ = 0x1, COPY_SRC = 0x4, COPY_DST = 0x8;
const STAGING_MIN = 1 << 12;
const STAGING_KEPT = 4; // per size
const STAGING_KEPT_BYTES = 64 << 20;
const WANTED_FEATURES = ['shader-f16', 'subgroups', 'timestamp-query'];
const SCOPES = ['internal', 'out-of-memory', 'validation'];

// Operation codes of a frame; browser.py has the same table.
const CREATE_BUFFER = 1, DESTROY_BUFFER = 2, WRITE = 3, COPY = 4, CREATE_GROUP = 5,
  DESTROY_GROUP = 6, DESTROY_PIPELINE = 7, SUBMIT = 8;
const HEADER_WORDS = 4; // operation words, command words, payload bytes, unused

function limitsOf(object) {
  const limits = {};
  for (const name in object.limits) {
    const value = object.limits[name];
    if (typeof value === 'number') limits[name] = value;
  }
  return limits;
}

function describe(adapter, object, index) {
  const info = adapter.info ?? {};
  const text = [info.description, info.device, info.architecture, info.vendor].filter(Boolean);
  const software = Boolean(info.isFallbackAdapter ?? adapter.isFallbackAdapter)
    || /swiftshader|llvmpipe|lavapipe|warp|basic render/i.test(text.join(' '));
  const browser = /(Chrome|Firefox|Version)\/[\d.]+/.exec(globalThis.navigator.userAgent ?? '');
  return {
    index,
    name: text[0] ?? 'WebGPU adapter',
    vendor: info.vendor ?? '',
    architecture: info.architecture ?? '',
    software,
    browser: browser ? browser[0].replace('Version', 'Safari') : '',
    features: [...object.features],
    limits: limitsOf(object),
  };
}

function whyNoWebGPU() {
  if (globalThis.navigator?.gpu) return '';
  if (globalThis.isSecureContext === false) {
    return 'WebGPU needs a secure page (https or localhost), and this page is neither';
  }
  return 'this browser has no WebGPU (navigator.gpu is missing); use a recent Chrome, Edge, Firefox or '
    + 'Safari, with WebGPU not switched off';
}

async function request(power) {
  const options = power ? { powerPreference: power } : {};
  const adapter = await globalThis.navigator.gpu.requestAdapter(options);
  return adapter ?? globalThis.navigator.gpu.requestAdapter({ forceFallbackAdapter: true });
}

const NO_ADAPTER = 'this browser has WebGPU but offers no adapter (requestAdapter gave null): the GPU or '
  + 'its driver is blocked, or hardware acceleration is off';

/** JSON: { reason } or { adapters: [...] }, the high-performance one first. */
export async function enumerate() {
  const reason = whyNoWebGPU();
  if (reason) return JSON.stringify({ reason });
  const adapters = [];
  for (const power of ['high-performance', 'low-power']) {
    const adapter = await request(power);
    if (!adapter) continue;
    const found = describe(adapter, adapter, adapters.length);
    const told = (each) => [each.name, each.vendor, each.architecture, each.software].join('|');
    if (!adapters.some((other) => told(other) === told(found))) adapters.push(found);
  }
  return JSON.stringify(adapters.length ? { adapters } : { reason: NO_ADAPTER });
}

/** Resolves to a Bridge; rejects with the reason. `limits`: "adapter" or "default". */
export async function open(power, limits) {
  const reason = whyNoWebGPU();
  if (reason) throw new Error(reason);
  const adapter = await request(power);
  if (!adapter) throw new Error(NO_ADAPTER);
  const requiredLimits = limits === 'adapter' ? limitsOf(adapter) : {};
  const requiredFeatures = WANTED_FEATURES.filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits, label: 'wgburn' });
  return new Bridge(adapter, device);
}

class Bridge {
  constructor(adapter, device) {
    this.device = device;
    this.queue = device.queue;
    this.info = JSON.stringify(describe(adapter, device, 0));
    this.buffers = []; // id -> GPUBuffer
    this.pipelines = []; // id -> GPUComputePipeline
    this.groups = []; // id -> { group, dynamic }
    this.layouts = new Map(); // "rw|params bytes" -> { group, pipeline }
    this.staging = new Map(); // size -> free mapped-for-reading buffers
    this.stagingBytes = 0;
    this.pending = new Set(); // promises of open error scopes
    this.waiting = new Set(); // rejections of promises that a lost device may never settle
    this.encoder = null;
    this.lost = '';
    this.onError = null;
    this.onLost = null;
    device.lost.then((info) => {
      this.lost = `${info.reason || 'unknown'}: ${info.message || 'no message'}`;
      this.onLost?.(this.lost);
      for (const reject of this.waiting) reject(new Error(this.lost));
    });
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault();
      this.onError?.(`WebGPU: ${event.error.message}`);
    });
  }

  // -- error scopes ------------------------------------------------------------------------------

  /** Run `work` inside error scopes; what they catch arrives at `onError`, made clearer by `explain`. */
  guarded(work, explain) {
    for (const scope of SCOPES) this.device.pushErrorScope(scope);
    try {
      return work();
    } finally {
      for (let i = SCOPES.length - 1; i >= 0; i -= 1) this.watch(SCOPES[i], explain);
    }
  }

  watch(scope, explain) {
    const settled = this.device.popErrorScope().then(async (error) => {
      if (!error) return;
      const text = explain ? await explain(error.message) : error.message;
      this.onError?.(`${scope}: ${text}`);
    }, () => {}).finally(() => this.pending.delete(settled));
    this.pending.add(settled);
  }

  async settle() {
    while (this.pending.size) await Promise.all([...this.pending]);
  }

  /** `promise`, or a rejection as soon as the device is lost: nothing waits for a dead device. */
  orLost(promise) {
    let fail;
    const raced = new Promise((resolve, reject) => {
      fail = reject;
      if (this.lost) reject(new Error(this.lost));
      this.waiting.add(reject);
      // A lost device first fails its pending maps and only then says that it is lost.
      const late = (error) => { setTimeout(() => reject(error), 200); };
      promise.then(resolve, late);
    });
    return raced.finally(() => this.waiting.delete(fail));
  }

  // -- frames ------------------------------------------------------------------------------------

  /** Execute one frame: everything Python queued since the last one, in order. One crossing. */
  run(frame) {
    const view = frame.getBuffer('u8');
    try {
      this.runBytes(view.data);
    } finally {
      view.release();
    }
  }

  runBytes(bytes) {
    if (bytes.byteOffset % 4) bytes = bytes.slice();
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    const operations = words.subarray(HEADER_WORDS, HEADER_WORDS + words[0]);
    const commands = words.subarray(HEADER_WORDS + words[0], HEADER_WORDS + words[0] + words[1]);
    const start = 4 * (HEADER_WORDS + words[0] + words[1]);
    const payload = bytes.subarray(start, start + words[2]);
    // Kept for a diagnosis: Python's memory may have moved by the time an error arrives.
    let kept = null;
    const explain = (message) => (kept ? this.diagnose(kept, message) : message);
    if (commands.length) kept = commands.slice();
    this.guarded(() => this.execute(operations, commands, payload), explain);
  }

  execute(ops, commands, payload) {
    const { queue, buffers } = this;
    let i = 0;
    while (i < ops.length) {
      switch (ops[i]) {
        case CREATE_BUFFER:
          buffers[ops[i + 1]] = this.device.createBuffer({
            size: ops[i + 2], usage: ops[i + 3], label: `buffer ${ops[i + 1]}`,
          });
          i += 4;
          break;
        case DESTROY_BUFFER:
          this.flushCopies();
          buffers[ops[i + 1]].destroy();
          buffers[ops[i + 1]] = undefined;
          i += 2;
          break;
        case WRITE:
          this.flushCopies();
          queue.writeBuffer(buffers[ops[i + 1]], ops[i + 2], payload, ops[i + 3], ops[i + 4]);
          i += 5;
          break;
        case COPY:
          this.encoder ??= this.device.createCommandEncoder();
          this.encoder.copyBufferToBuffer(
            buffers[ops[i + 1]], ops[i + 2], buffers[ops[i + 3]], ops[i + 4], ops[i + 5],
          );
          i += 6;
          break;
        case CREATE_GROUP:
          i = this.createGroup(ops, i);
          break;
        case DESTROY_GROUP:
          this.groups[ops[i + 1]] = undefined;
          i += 2;
          break;
        case DESTROY_PIPELINE:
          this.pipelines[ops[i + 1]] = undefined;
          i += 2;
          break;
        case SUBMIT:
          this.submit(commands);
          i += 1;
          break;
        default:
          throw new Error(`wgburn bridge: unknown operation ${ops[i]} at word ${i}`);
      }
    }
    this.flushCopies();
  }

  /** Copies share an encoder until something that acts on the queue must come after them. */
  flushCopies() {
    if (!this.encoder) return;
    const encoder = this.encoder;
    this.encoder = null;
    this.queue.submit([encoder.finish()]);
  }

  submit(commands) {
    const encoder = this.encoder ?? this.device.createCommandEncoder();
    this.encoder = null;
    const pass = encoder.beginComputePass();
    this.encode(pass, commands, 0, commands.length);
    pass.end();
    this.queue.submit([encoder.finish()]);
  }

  encode(pass, commands, first, end) {
    const { pipelines, groups } = this;
    let pipeline = 0;
    for (let k = first; k < end; k += 6) {
      if (commands[k] !== pipeline) {
        pipeline = commands[k];
        pass.setPipeline(pipelines[pipeline]);
      }
      const entry = groups[commands[k + 1]];
      if (entry.dynamic) pass.setBindGroup(0, entry.group, commands, k + 2, 1);
      else pass.setBindGroup(0, entry.group);
      pass.dispatchWorkgroups(commands[k + 3], commands[k + 4], commands[k + 5]);
    }
  }

  /** Which launch is at fault: encode each one alone, never submit. Only after an error. */
  async diagnose(commands, message) {
    for (let k = 0; k < commands.length; k += 6) {
      const pipeline = this.pipelines[commands[k]];
      if (!pipeline || !this.groups[commands[k + 1]]) continue; // destroyed since
      this.device.pushErrorScope('validation');
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      this.encode(pass, commands, k, k + 6);
      pass.end();
      encoder.finish();
      const error = await this.device.popErrorScope();
      if (error) return `program '${pipeline.label}', launch ${k / 6}: ${error.message}`;
    }
    return message;
  }

  // -- programs ----------------------------------------------------------------------------------

  layout(access, paramsBytes) {
    const key = `${access}|${paramsBytes}`;
    let layout = this.layouts.get(key);
    if (!layout) {
      const entries = [...access].map((letter, binding) => ({
        binding,
        visibility: 4, // GPUShaderStage.COMPUTE
        buffer: { type: letter === 'r' ? 'read-only-storage' : 'storage' },
      }));
      if (paramsBytes) {
        entries.push({
          binding: access.length,
          visibility: 4,
          buffer: { type: 'uniform', hasDynamicOffset: true, minBindingSize: paramsBytes },
        });
      }
      const group = this.device.createBindGroupLayout({ entries, label: key });
      const pipeline = this.device.createPipelineLayout({ bindGroupLayouts: [group], label: key });
      layout = { group, pipeline };
      this.layouts.set(key, layout);
    }
    return layout;
  }

  createGroup(ops, at) {
    const [, id, readMask, count, paramsBytes, params] = ops.subarray(at, at + 6);
    let access = '';
    const entries = [];
    for (let b = 0; b < count; b += 1) {
      access += (readMask >>> b) & 1 ? 'r' : 'w';
      const word = at + 6 + 3 * b;
      entries.push({
        binding: b,
        resource: { buffer: this.buffers[ops[word]], offset: ops[word + 1], size: ops[word + 2] },
      });
    }
    if (paramsBytes) {
      entries.push({ binding: count, resource: { buffer: this.buffers[params], size: paramsBytes } });
    }
    const layout = this.layout(access, paramsBytes).group;
    const group = this.device.createBindGroup({ layout, entries, label: `bind group ${id}` });
    this.groups[id] = { group, dynamic: paramsBytes > 0 };
    return at + 6 + 3 * count;
  }

  /** A frame, then compile [{id, name, wgsl, access, params}] together. "" or the text of every error. */
  async compile(frame, json) {
    if (frame) this.run(frame);
    const made = JSON.parse(json).map((program) => this.startProgram(program));
    const errors = [];
    for (const { program, module, scope, result } of made) {
      const moduleError = await scope;
      const pipeline = await result.catch((error) => error);
      if (moduleError || pipeline instanceof Error) {
        errors.push(await this.explainProgram(program, module, moduleError ?? pipeline));
      } else {
        program.pipeline = pipeline;
      }
    }
    if (errors.length) return errors.join('\n');
    for (const { program } of made) this.pipelines[program.id] = program.pipeline;
    return '';
  }

  startProgram(program) {
    const { device } = this;
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code: program.wgsl, label: program.name });
    const { pipeline: layout } = this.layout(program.access, program.params);
    const scope = device.popErrorScope();
    const result = device.createComputePipelineAsync({
      label: program.name, layout, compute: { module, entryPoint: 'main' },
    });
    result.catch(() => {}); // read later, in order
    return { program, module, scope, result };
  }

  async explainProgram(program, module, error) {
    const { messages } = await module.getCompilationInfo();
    const lines = program.wgsl.split('\n');
    const found = messages.filter((message) => message.type === 'error').map((message) => (
      `program '${program.name}', WGSL line ${message.lineNum}: ${message.message}`
      + `\n    ${(lines[message.lineNum - 1] ?? '').trim()}`
    ));
    return found.length ? found.join('\n') : `program '${program.name}': ${error.message}`;
  }

  // -- host memory -------------------------------------------------------------------------------

  /** A frame, then one large write straight from Python's memory. */
  write(frame, id, offset, data) {
    if (frame) this.run(frame);
    const view = data.getBuffer('u8');
    try {
      this.guarded(() => this.queue.writeBuffer(this.buffers[id], offset, view.data));
    } finally {
      view.release();
    }
  }

  takeStaging(bytes) {
    let size = STAGING_MIN;
    while (size < bytes) size *= 2;
    const free = this.staging.get(size);
    if (free?.length) {
      this.stagingBytes -= size;
      return free.pop();
    }
    return this.device.createBuffer({ size, usage: MAP_READ | COPY_DST, label: 'readback' });
  }

  giveStaging(buffer) {
    const free = this.staging.get(buffer.size) ?? [];
    if (free.length >= STAGING_KEPT || this.stagingBytes + buffer.size > STAGING_KEPT_BYTES) {
      buffer.destroy();
      return;
    }
    free.push(buffer);
    this.staging.set(buffer.size, free);
    this.stagingBytes += buffer.size;
  }

  /** A frame, then bytes of a buffer into `target`, Python memory of that size. Resolves to the bytes of the staging
   *  buffers that are kept. */
  async read(frame, id, offset, size, target) {
    if (frame) this.run(frame);
    let staging = null;
    this.guarded(() => {
      staging = this.takeStaging(size);
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.buffers[id], offset, staging, 0, size);
      this.queue.submit([encoder.finish()]);
    });
    await this.orLost(Promise.all([staging.mapAsync(MAP_READ, 0, size), this.settle()]));
    const view = target.getBuffer('u8');
    view.data.set(new Uint8Array(staging.getMappedRange(0, size)));
    view.release();
    staging.unmap();
    this.giveStaging(staging);
    return this.stagingBytes;
  }

  /** A frame, then wait until the queue is empty and every error has been reported. */
  async wait(frame) {
    if (frame) this.run(frame);
    await this.orLost(Promise.all([this.queue.onSubmittedWorkDone(), this.settle()]));
  }

  /** What is alive on this side, for leak tests. */
  counts() {
    const alive = (list) => list.reduce((n, item) => n + (item === undefined ? 0 : 1), 0);
    let staging = 0;
    for (const free of this.staging.values()) staging += free.length;
    return JSON.stringify({
      buffers: alive(this.buffers), groups: alive(this.groups), pipelines: alive(this.pipelines), staging,
      pending: this.pending.size,
    });
  }

  close() {
    this.onError = null;
    this.onLost = null;
    this.device.destroy(); // frees every buffer of the device
    this.buffers = [];
    this.groups = [];
    this.pipelines = [];
    this.layouts.clear();
    this.staging.clear();
  }
}
