// Lanes of events and step curves, and how many events become few pixels.
"use strict";

/** Events that follow each other on one engine, sorted by start. */
class Lane {
  constructor(profile, label, height, ids, from, to, instructionOf, sizes) {
    this.profile = profile;
    this.label = label;
    this.height = height;
    ids = ordered(ids, from);
    const n = ids.length;
    this.count = n;
    this.instr = new Int32Array(n);
    this.from = new Float64Array(n);
    this.to = new Float64Array(n);
    this.busy = new Float64Array(n + 1);         // time busy before event i
    this.bytes = sizes ? new Float64Array(n + 1) : null;
    this.color = new Uint8Array(n);
    for (let i = 0; i < n; i++) {
      const id = ids[i], instr = instructionOf ? instructionOf[id] : id;
      this.instr[i] = instr;
      this.from[i] = from[id];
      this.to[i] = to[id];
      if (!sizes && i && this.to[i - 1] > this.from[i]) this.to[i - 1] = this.from[i];
      if (sizes) this.bytes[i + 1] = this.bytes[i] + sizes[id];
      this.color[i] = profile.colorOfKind[profile.col.kind[instr]];
    }
    for (let i = 0; i < n; i++) this.busy[i + 1] = this.busy[i] + Math.max(0, this.to[i] - this.from[i]);
    this.at = new Map();
  }

  /** The lane with only the events of instructions that `keep` accepts. */
  filtered(keep) {
    const ids = [];
    for (let i = 0; i < this.count; i++) if (keep(this.instr[i])) ids.push(i);
    const lane = new Lane(this.profile, this.label, this.height, ids, this.from, this.to, this.instr);
    return Object.assign(lane, { title: this.title, segments: this.segments });
  }

  /** The name of an event; on an engine's lane, a transfer is its trigger. */
  text(i) {
    const name = this.profile.name(this.instr[i]);
    return this.title && !this.segments && this.profile.col.engine[this.instr[i]] === DMA ? `trigger ${name}` : name;
  }

  /** Index of the last event that starts at or before t, -1 if none. */
  before(t) { return upper(this.from, t) - 1; }

  /** Time busy (or bytes moved) before t, where i = before(t). */
  sum(i, t, what) {
    if (i < 0) return 0;
    const length = this.to[i] - this.from[i];
    const part = length > 0 ? Math.min(1, (t - this.from[i]) / length) : 1;
    return what[i] + part * (what[i + 1] - what[i]);
  }

  /** The event under t, or within `near` of it; -1 if none. */
  hit(t, near) {
    const i = this.before(t);
    if (i >= 0 && t - this.to[i] <= near) return i;
    return i + 1 < this.count && this.from[i + 1] - t <= near ? i + 1 : -1;
  }

  /** Paint one pixel row: what is busy in each pixel, as strong as it is busy. */
  pixels(out, offset, width, t0, perPixel, shades, moved) {
    let hi = this.count, t = t0, i = this.before(t);
    let busy = this.sum(i, t, this.busy), done = moved ? this.sum(i, t, this.bytes) : 0;
    for (let x = 0; x < width; x++) {
      const next = t0 + (x + 1) * perPixel;
      let j = i;
      for (let step = 0; step < 8 && j + 1 < hi && this.from[j + 1] <= next; step++) j++;
      if (j + 1 < hi && this.from[j + 1] <= next) j = upper(this.from, next, j + 1) - 1;
      const now = this.sum(j, next, this.busy), part = Math.min(1, (now - busy) / perPixel);
      if (part > 0) {
        const shown = i >= 0 && this.to[i] > t ? i : Math.min(i + 1, j);
        out[offset + x] = shades[this.color[Math.max(0, shown)]][Math.max(4, Math.ceil(part * 15))];
      }
      if (moved) {
        const total = this.sum(j, next, this.bytes);
        moved[x] += total - done;
        done = total;
      }
      busy = now;
      i = j;
      t = next;
    }
  }
}

/** Number of elements of a sorted array that are <= t. */
function upper(array, t, low = 0) {
  let high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] <= t) low = middle + 1; else high = middle;
  }
  return low;
}

function ordered(ids, from) {
  for (let i = 1; i < ids.length; i++) {
    if (from[ids[i]] < from[ids[i - 1]]) return Array.from(ids).sort((a, b) => from[a] - from[b]);
  }
  return ids;
}

/** All lanes of a profile: engines, rows of overlapping transfers, the 16 DMA engines. */
function lanesOf(profile) {
  const { col, head } = profile, rows = [[]], lanes = [];
  for (let e = 0; e < DMA; e++) {
    const ids = profile.queues[e];
    const lane = new Lane(profile, ENGINE_NAMES[e], ids.length ? 24 : 11, ids, profile.takes, profile.leaves);
    lane.title = ENGINE_NAMES[e];
    lanes.push(lane);
  }
  for (let i = 0; i < profile.count; i++) if (col.engine[i] === DMA) (rows[col.row[i]] ??= []).push(i);
  rows.forEach((ids, r) => {
    const lane = new Lane(profile, r ? "" : "DMA transfers", 7, ids, profile.start, profile.end);
    lane.gap = r === 0;
    lanes.push(lane);
  });
  const segments = Array.from({ length: head.dma_engines }, () => []);
  for (let i = 0; i < col.seg_engine.length; i++) segments[col.seg_engine[i]].push(i);
  segments.forEach((ids, e) => {
    const lane = new Lane(profile, e % 4 ? "" : `DMA engine ${e}`, 5, ids, profile.segStart,
                          profile.segEnd, col.seg_instr, col.seg_bytes);
    lane.gap = e === 0;
    lane.segments = true;
    lane.title = `DMA engine ${e}`;
    if (isMeasured(profile)) {                   // the file need not say which engine moved what
      lane.label = e ? "" : "DMA, side by side";
      lane.title = "DMA";
    }
    lanes.push(lane);
  });
  return lanes;
}

/** A step function of time, with the maximum of any range quickly. */
class Curve {
  constructor(label, height, time, value, limit, format) {
    Object.assign(this, { label, height, time, value, format, block: 64 });
    this.blockMax = new Float64Array(Math.ceil(value.length / this.block));
    value.forEach((v, i) => {
      const b = Math.floor(i / this.block);
      if (v > this.blockMax[b]) this.blockMax[b] = v;
    });
    const peak = this.maximum(0, value.length - 1);
    this.full = peak > limit / 4 ? Math.max(peak, limit) : Math.max(1, peak * 1.2);
    this.note = `peak ${format(peak)}`;
  }

  at(t) { return this.valueAt(upper(this.time, t) - 1); }

  valueAt(i) { return i < 0 ? 0 : this.value[i]; }

  maximum(i, j) {
    let best = this.valueAt(i);
    for (i = Math.max(0, i); i <= j;) {
      if (i % this.block === 0 && i + this.block <= j) {
        best = Math.max(best, this.blockMax[i / this.block]);
        i += this.block;
      } else {
        best = Math.max(best, this.value[i++]);
      }
    }
    return best;
  }

  /** The largest value in each pixel. */
  pixels(out, width, t0, perPixel) {
    let i = upper(this.time, t0) - 1;
    for (let x = 0; x < width; x++) {
      const j = upper(this.time, t0 + (x + 1) * perPixel, Math.max(0, i)) - 1;
      out[x] = this.maximum(i, j);
      i = j;
    }
  }
}

function curvesOf(profile) {
  const { head, col, memTime, pending } = profile;
  const waiting = new Curve("Pending DMAs", 30, pending.time, pending.value, 1, (v) => `${v}`);
  if (isMeasured(profile)) return [waiting];     // it says nothing of SBUF and PSUM
  return [
    waiting,
    new Curve("SBUF in use", 34, memTime, col.mem_sbuf, head.sbuf_bytes,
              (v) => `${(v / 1024).toFixed(1)} of ${Math.round(head.sbuf_bytes / 1024)} KiB`),
    new Curve("PSUM in use", 30, memTime, col.mem_psum, head.psum_banks,
              (v) => `${v} of ${head.psum_banks} banks`),
  ];
}
