// The data of the page: decoding, and what is computed from the columns once.
"use strict";

const ENGINES = ["tensor", "vector", "scalar", "gpsimd", "sync", "dma"];
const ENGINE_NAMES = ["Tensor", "Vector", "Scalar", "GpSimd", "Sync", "DMA"];
const DMA = 5;
const PALETTE = ["#3b76c4", "#b55c00", "#257d4d", "#a8458f", "#857000", "#c23f35", "#6c5fc7",
                 "#177784", "#856745", "#667084", "#4d7a12", "#a02c5a"];
/** Place in the palette of the commonest instructions; others have one by their name (colorOf). */
const COLORS = new Map(Object.entries({
  "load (DMA)": 0, "store (DMA)": 1, "nc_matmul": 2, "tensor_copy": 3, "nc_transpose": 4, "tensor_tensor": 5,
  "activation": 6, "tensor_scalar": 7, "copy (DMA)": 8, "memset": 9, "tensor_reduce": 10, "activation_reduce": 11 }));

/** Place in the palette of an instruction: by its name alone, so that it looks alike in every profile. */
function colorOf(label) {
  let hash = 2166136261;
  for (const letter of label) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  return COLORS.get(label) ?? 3 + hash % (PALETTE.length - 3);
}
const ARRAYS = { i1: Int8Array, i2: Int16Array, i4: Int32Array, u1: Uint8Array, u2: Uint16Array,
                 u4: Uint32Array, f4: Float32Array };

/** Decode a data block of the page; null if there is none. */
async function readProfile(id) {
  const block = document.getElementById(id);
  if (!block) return null;
  if (!("DecompressionStream" in window)) {
    throw new Error("This browser is too old for the page (it needs DecompressionStream: " +
                    "Chrome or Edge 80, Firefox 113, Safari 16.4).");
  }
  const packed = JSON.parse(block.textContent);
  block.textContent = "";                        // megabytes that are not needed twice
  const text = atob(packed.blob), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Profile(packed, await new Response(stream).arrayBuffer());
}

class Profile {
  constructor(packed, buffer) {
    this.head = packed.head;
    this.col = {};
    for (const [name, code, count, at] of packed.layout) {
      this.col[name] = new ARRAYS[code](buffer, at, count);
    }
    const { tick_us: tick, kinds } = this.head, c = this.col;
    this.count = c.start.length;
    // The launch comes first: so the end of the timeline is the latency in the header.
    const { latency_us: latency, body_us: body } = this.head;
    this.launch = isMeasured(this) || !(latency > body) ? 0 : latency - body;
    const us = (ticks) => Float64Array.from(ticks, (t) => t * tick + this.launch);
    const ends = (first, length) => Float64Array.from(first, (t, i) => (t + length[i]) * tick + this.launch);
    this.start = us(c.start);
    this.end = ends(c.start, c.dur);
    this.issue = us(c.issue);
    this.triggered = ends(c.issue, c.trigger);
    this.segStart = us(c.seg_start);
    this.segEnd = ends(c.seg_start, c.seg_dur);
    this.memTime = us(c.mem_time);
    this.lifeFirst = us(c.life_first);
    this.lifeLast = us(c.life_last);
    this.dge = this.head.descriptors === "dge";
    this.total = 0;
    for (const e of this.end) if (e > this.total) this.total = e;
    this.ends = this.total;                        // what is after it is control flow of the chip
    if (this.launch) this.total = Math.max(this.total, latency);
    this.stretches = [{ from: 0, to: this.launch, name: "launch",
      about: "What starting any kernel takes, before its first instruction. Nothing in the kernel changes it." },
    { from: this.ends, to: this.total, name: "control flow",
      about: "Registers and loops that the chip itself goes through; the model lets nothing overlap them." }]
      .filter(({ from, to }) => to - from > 1e-3);
    this.operandAt = new Int32Array(this.count);
    for (let i = 0, at = 0; i < this.count; i++) {
      this.operandAt[i] = at;
      at += kinds[c.kind[i]].operands.length;
    }
    this._queues();
    this._successors();
    this._names();
    this._lines();
    this._pending();
  }

  /**
   * The order of each queue, and behind[i]: the one before i on its queue. On a queue a DMA is its
   * trigger: it takes the queue from issue to triggered, everything else from start to end.
   */
  _queues() {
    const { engine } = this.col, lists = ENGINES.map(() => []);
    this.takes = this.start.slice();
    this.leaves = this.end.slice();
    for (let i = 0; i < this.count; i++) {
      const moves = engine[i] === DMA, q = this.queueOf(i);
      if (moves) { this.takes[i] = this.issue[i]; this.leaves[i] = this.triggered[i]; }
      if (q >= 0) lists[q].push(i);
    }
    this.behind = new Int32Array(this.count).fill(-1);
    this.queues = lists.map((ids) => ordered(ids, this.takes));
    for (const ids of this.queues) {
      for (let k = 1; k < ids.length; k++) {
        this.behind[ids[k]] = ids[k - 1];
        // An engine takes the next instruction before the last one has left its pipeline.
        this.leaves[ids[k - 1]] = Math.min(this.leaves[ids[k - 1]], this.takes[ids[k]]);
      }
    }
    this.spent = this.end.map((end, i) => (engine[i] === DMA ? end : this.leaves[i]) - this.start[i]);
  }

  queueOf(i) { return this.col.engine[i] === DMA ? this.col.queue[i] : this.col.engine[i]; }

  /** What held instruction i back: what it waited for, or what was before it on its queue. */
  blocker(i) {
    const pred = this.col.pred[i], before = this.behind[i];
    const queued = before >= 0 && (pred < 0 || this.end[pred] < this.takes[i] - 0.06) &&
                   this.leaves[before] > this.takes[i] - 0.06;
    return { by: queued ? before : pred, queued };
  }

  /** How long a transfer stood in line for the DMA engines, after its trigger had got to them. */
  inLine(i) {
    const lead = (this.head.dma_start_us ?? Infinity) + (this.dge ? this.triggered[i] - this.issue[i] : 0);
    return this.col.engine[i] === DMA ? Math.max(0, this.start[i] - this.issue[i] - lead) : 0;
  }

  /** Why instruction i did not start earlier: a sentence for each wait, the first one first. */
  reasons(i) {
    const { by, queued } = this.blocker(i), c = this.col, out = [];
    const who = (k) => `${c.line[k] < 0 ? "" : `line ${this.head.lines[c.line[k]][1]}'s `}${this.name(k).replace(" (DMA)", "")}`;
    if (by >= 0 && queued) {
      out.push(`waits for its turn on the queue of ${ENGINE_NAMES[this.queueOf(i)]}, behind ${who(by)}`);
    } else if (by >= 0) {
      const name = c.why_storage?.[i] >= 0 ? this.head.names[c.storage_name[c.why_storage[i]]] : "?";
      const tile = name === "?" ? "a tile" : name === "input" ? "an input" : name.includes(" ") ? "a tile that is " + name : name;
      const memory = ["SBUF", "PSUM", "HBM"][c.storage_memory[c.operand[this.operandAt[i]]]];
      out.push([`waits for ${who(by)}`, `waits for ${who(by)} to ${c.engine[by] === DMA ? "bring" : "compute"} ${tile}`, `waits for ${who(by)} to free the buffer of ${tile}`,
                `waits for ${who(by)} to write ${tile} first`,
                `waits for ${who(by)} to leave its ${memory === "PSUM" ? "bank of" : "memory in"} ${memory}`,
                `is not loaded before it will be needed: waits for ${who(by)}`][c.why?.[i] ?? 0]);
    }
    const free = Math.max(c.pred[i] >= 0 ? this.end[c.pred[i]] : this.launch, this.behind[i] >= 0 ? this.leaves[this.behind[i]] : this.launch);
    if (c.engine[i] !== DMA && this.takes[i] - free > 0.06) {
      const into = this.head.kinds[c.kind[i]].operands[0]?.[0] === "psum";
      const table = c.engine[i] === 2 && this.name(i).startsWith("activation");
      out.push(`then ${time(this.takes[i] - free)} ` + (into ? `for a bank of PSUM${this.left(this.takes[i])}`
        : table ? "for the table of its function" : "for an engine that uses the same memory"));
    }
    if (this.inLine(i) > 0.05) out.push(`then ${time(this.inLine(i))} in line for the DMA engines, which serve earlier transfers`);
    return out;
  }

  /** Who left PSUM last before a time, in words. */
  left(t) {
    const c = this.col;
    let best = -1;
    for (let k = 0; k < c.life_storage.length; k++) {
      if (c.storage_memory[c.life_storage[k]] === 1 && this.lifeLast[k] <= t + 0.05 &&
          (best < 0 || this.lifeLast[k] > this.lifeLast[best])) best = k;
    }
    return best < 0 || c.life_line[best] < 0 ? "" : `, which the tile of line ${this.head.lines[c.life_line[best]][1]} leaves`;
  }

  /** Successors of instruction i: succ[succAt[i] .. succAt[i + 1]]. */
  _successors() {
    const pred = this.col.pred, at = new Int32Array(this.count + 1);
    for (const p of pred) if (p >= 0) at[p + 1]++;
    for (let i = 0; i < this.count; i++) at[i + 1] += at[i];
    const next = at.slice(), succ = new Int32Array(at[this.count]);
    pred.forEach((p, i) => { if (p >= 0) succ[next[p]++] = i; });
    this.succAt = at;
    this.succ = succ;
  }

  /** What one sees of an instruction: its name and, for DMA, the direction. Longest total first. */
  _names() {
    const spill = (k) => k.name.startsWith("spill_") ? "spill " : "";
    const labels = this.head.kinds.map((k) => k.moves ? `${spill(k)}${k.moves} (DMA)` : k.name);
    const by = new Map(), { kind, engine } = this.col;
    for (let i = 0; i < this.count; i++) {         // the engine that ran it: copies go to either of two
      const label = labels[kind[i]], key = `${engine[i]} ${label}`, time = this.spent[i];
      if (!by.has(key)) by.set(key, { label, engine: engine[i], time: 0, count: 0, longest: 0, at: -1 });
      const row = by.get(key);
      row.time += time;
      row.count++;
      if (time > row.longest || row.at < 0) { row.longest = time; row.at = i; }
    }
    this.top = [...by.values()].sort((a, b) => b.time - a.time);
    for (const row of this.top) {
      row.color = colorOf(row.label);
    }
    this.colorOfKind = labels.map(colorOf);
    this.labels = labels;
  }

  /** Time by source line and name of instruction. */
  _lines() {
    const { lines } = this.head, keys = new Map();
    this.placeOf = lines.map(([file, number]) => {     // two functions can share a line
      const key = `${file}:${number}`;
      if (!keys.has(key)) keys.set(key, keys.size);
      return keys.get(key);
    });
    this.places = [...keys.keys()].map((key) => key.split(":").map(Number));
    this.lineTime = this.places.map(() => new Map());
    const { line, kind } = this.col;
    for (let i = 0; i < this.count; i++) {
      if (line[i] < 0) continue;
      const times = this.lineTime[this.placeOf[line[i]]], k = kind[i];
      times.set(k, (times.get(k) ?? 0) + this.spent[i]);
    }
  }

  /** How many DMA transfers have been triggered and are not complete, as a step function. */
  _pending() {
    const from = [], to = [];
    for (let i = 0; i < this.count; i++) {
      if (this.col.engine[i] === DMA) { from.push(this.issue[i]); to.push(this.end[i]); }
    }
    const a = Float64Array.from(from).sort(), b = Float64Array.from(to).sort();
    const time = new Float64Array(a.length * 2 + 1), value = new Int32Array(time.length);
    for (let i = 0, j = 0, n = 1; j < b.length; n++) {
      if (i < a.length && a[i] < b[j]) { time[n] = a[i++]; } else { time[n] = b[j++]; }
      value[n] = i - j;
    }
    this.pending = { time, value };
  }

  place(line) {
    if (line < 0) return "";
    const [file, number] = this.head.lines[line];
    return `${this.head.files[file].name}:${number}`;
  }

  sourceText(line) {
    if (line < 0) return "";
    const [file, number] = this.head.lines[line], { first, text } = this.head.files[file];
    return (text[number - first] ?? "").trim();
  }

  name(i) { return this.labels[this.col.kind[i]]; }

  operands(i) {
    const kind = this.head.kinds[this.col.kind[i]], names = this.head.names;
    return kind.operands.map(([memory, dtype, shape], k) => {
      const name = names[this.col.storage_name[this.col.operand[this.operandAt[i] + k]]] ?? "?";
      return { role: k < kind.outputs ? (kind.accumulate ? "adds to" : "writes") : "reads",
               text: `${name === "?" ? "" : name + ": "}${memory} ${dtype} [${shape.join(", ")}]` };
    });
  }

  loops(i) {
    const out = [];
    for (let node = this.col.node[i]; node > 0; node = this.col.node_parent[node]) {
      out.unshift(`[${this.col.node_iter[node]}]`);
    }
    return out.join("");
  }

  /** What held i back, what held that back, and so on; i first. */
  chain(i, limit = this.count) {
    const out = [];
    for (let next = { by: i, queued: false }; next.by >= 0 && out.length < limit; next = this.blocker(next.by)) out.push(next);
    return out;
  }

  /** Where the time before the end of a chain went: {name: microseconds}. */
  shares(chain) {
    const out = {}, { engine, queue } = this.col;
    let t = this.end[chain[0].by];
    const add = (name, from) => { if (t > from + 5e-4) { out[name] = (out[name] ?? 0) + t - from; t = from; } };
    for (const { by: k, queued } of chain) {
      const moves = engine[k] === DMA;
      if (queued && moves) { add(`triggers on the ${ENGINE_NAMES[queue[k]]} queue`, this.issue[k]); continue; }
      add("latency between instructions", this.end[k]);
      add(ENGINE_NAMES[engine[k]], this.start[k]);
      if (moves) {
        add("in line for the DMA engines", this.start[k] - this.inLine(k));
        add("trigger to first byte", this.issue[k]);
      }
    }
    if (this.launch) { add("latency between instructions", this.launch); add("launch", 0); }
    return Object.fromEntries(Object.entries(out).sort((a, b) => b[1] - a[1]));
  }

  last() {
    let best = 0;
    for (let i = 1; i < this.count; i++) if (this.end[i] > this.end[best]) best = i;
    return best;
  }

  /** What is in SBUF or PSUM at a time: [{name, place, bytes, tiles}], most bytes first. */
  holds(time, psum) {
    const c = this.col, by = new Map();
    for (let i = 0; i < c.life_storage.length; i++) {
      if (c.storage_memory[c.life_storage[i]] !== psum || this.lifeFirst[i] > time || this.lifeLast[i] <= time) continue;
      const key = c.life_line[i] * 4096 + c.storage_name[c.life_storage[i]];
      let row = by.get(key);
      if (!row) {
        row = { name: this.head.names[c.storage_name[c.life_storage[i]]], line: c.life_line[i],
                place: this.place(c.life_line[i]), bytes: 0, tiles: 0 };
        by.set(key, row);
      }
      row.bytes += c.life_bytes[i];
      row.tiles++;
    }
    return [...by.values()].sort((a, b) => b.bytes - a.bytes);
  }
}

// -- text ----------------------------------------------------------------------------------------

function time(us) {
  const a = Math.abs(us);
  if (a >= 10000) return `${(us / 1000).toFixed(2)} ms`;
  if (a >= 100) return `${us.toFixed(1)} \u00b5s`;
  if (a >= 1) return `${us.toFixed(2)} \u00b5s`;
  return `${(us * 1000).toFixed(0)} ns`;
}

function bytes(n) {
  if (n >= 1048576) return `${(n / 1048576).toFixed(1)} MiB`;
  return n >= 10240 ? `${(n / 1024).toFixed(1)} KiB` : `${Math.round(n)} B`;
}

const percent = (x) => `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)} %`;

/** Make an element; strings become text nodes, so nothing in them is ever markup. */
function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "line", "path", "circle", "text", "rect"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
                   : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "css") Object.assign(node.style, value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
