// One canvas of lanes and curves. Two layers: the lanes, and what follows the pointer.
"use strict";

const GUTTER = 122, RULER = 20;

/** The stretch of time that a timeline shows; all in microseconds. Linked views show the same one. */
class View {
  constructor(total) {
    this.own = this.total = total;
    this.watchers = [];
    this.links = [];
    this.fit();
  }

  /** Show the same stretch as other views from now on (those of a page), or (null) a stretch of its own. */
  link(views) {
    this.links = (views ?? []).filter((view) => view !== this);
    this.total = views ? Math.max(...views.map((view) => view.own)) : this.own;
  }

  fit() { this.set(0, this.total * 1.01); }

  set(t0, t1) {
    const span = Math.min(Math.max(t1 - t0, 0.005), this.total * 1.05);
    const middle = (t0 + t1) / 2, edge = span * 0.5;
    const centre = Math.min(Math.max(middle, Math.min(edge, this.total / 2) - span * 0.02),
                            Math.max(this.total - edge * 0.9, this.total / 2));
    for (const view of [this, ...this.links]) {
      view.t0 = centre - span / 2;
      view.t1 = centre + span / 2;
      for (const watcher of view.watchers) watcher();
    }
  }

  zoom(factor, at = (this.t0 + this.t1) / 2) {
    this.set(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }

  pan(part) { const d = part * (this.t1 - this.t0); this.set(this.t0 + d, this.t1 + d); }
}

class Timeline {
  constructor(profile, view, host) {
    Object.assign(this, { profile, view, selected: -1, filter: null, hover: null, measure: null,
                          onselect() {}, onhover() {} });
    this.lanes = lanesOf(profile);
    this.curves = curvesOf(profile);
    let y = RULER + 4;
    for (const lane of this.lanes) {
      if (lane.gap) y += 6;
      lane.y = y;
      y += lane.height + (lane.height > 10 ? 3 : 1);
    }
    y += 6;
    this.throughput = { label: "DMA throughput", height: 34, y };
    y += 38;
    for (const curve of this.curves) { curve.y = y; y += curve.height + 4; }
    this.height = y + 2;
    this.box = el("div", { class: "timeline" });
    this.base = el("canvas", { tabindex: 0, role: "img" });
    this.over = el("canvas", { "aria-hidden": "true" });
    this.over.style.pointerEvents = "none";
    this.base.setAttribute("aria-label",
      `Timeline of ${profile.head.kernel}: ${profile.count} instructions in ` +
      `${time(profile.total)}, ${isMeasured(profile) ? "measured" : "predicted"}. W and S zoom, A and D pan, arrows select.`);
    this.box.append(this.base, this.over);
    host.append(this.box);
    this.strip = document.createElement("canvas");
    view.watchers.push(() => this.dirty());
    new ResizeObserver(() => this.resize()).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme());
    this.resize();
    this.theme();
  }

  resize() {
    this.scale = Math.min(window.devicePixelRatio || 1, 2);
    this.width = Math.max(this.box.clientWidth, 260);
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(this.width * this.scale);
      canvas.height = Math.round(this.height * this.scale);
      canvas.style.height = `${this.height}px`;
    }
    this.dirty();
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    this.css = {};
    for (const name of ["bg", "lane", "line", "text", "dim", "accent", "mark", "bad"]) {
      this.css[name] = style.getPropertyValue(`--${name}`).trim();
    }
    const ground = rgb(this.css.lane);
    this.shades = PALETTE.map((color) => shades(rgb(color), ground, 1));
    this.faint = PALETTE.map((color) => shades(rgb(color), ground, 0.22));
    this.dirty();
  }

  dirty() {
    if (this.waiting || !this.css) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  get plot() { return this.width - GUTTER; }

  x(t) { return GUTTER + (t - this.view.t0) / (this.view.t1 - this.view.t0) * this.plot; }

  t(x) { return this.view.t0 + (x - GUTTER) / this.plot * (this.view.t1 - this.view.t0); }

  /** Show only the instructions that `keep` accepts at full strength; null: all. */
  show(keep) {
    this.filter = keep;
    for (const lane of this.lanes) lane.kept = keep ? lane.filtered(keep) : null;
    this.dirty();
  }

  draw() {
    const g = this.base.getContext("2d"), { css, view, scale } = this;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = css.bg;
    g.fillRect(0, 0, this.width, this.height);
    this._ruler(g);
    const width = Math.max(1, Math.round(this.plot * scale)), rows = this.lanes.length;
    const perPixel = (view.t1 - view.t0) / width;
    if (this.strip.width !== width || this.strip.height !== rows) {
      this.strip.width = width;
      this.strip.height = rows;
      this.image = this.strip.getContext("2d").createImageData(width, rows);
      this.words = new Uint32Array(this.image.data.buffer);
      this.moved = new Float64Array(width);
    }
    this.words.fill(word(rgb(css.lane)));
    this.moved.fill(0);
    this.lanes.forEach((lane, row) => {
      lane.pixels(this.words, row * width, width, view.t0, perPixel,
                  lane.kept ? this.faint : this.shades, lane.bytes ? this.moved : null);
      if (lane.kept) lane.kept.pixels(this.words, row * width, width, view.t0, perPixel, this.shades);
    });
    this.strip.getContext("2d").putImageData(this.image, 0, 0);
    g.imageSmoothingEnabled = false;
    this.lanes.forEach((lane, row) => {
      g.drawImage(this.strip, 0, row, width, 1, GUTTER, lane.y, this.plot, lane.height);
      this._label(g, lane);
      if (lane.height > 10) this._names(g, lane);
    });
    this._curves(g, width, perPixel);
    for (const stretch of this.profile.stretches) this._stretch(g, stretch);
    this.overlay();
  }

  /** Hatch what is no instruction's time: the launch, and control flow of the chip. */
  _stretch(g, { from, to, name }) {
    const left = Math.max(this.x(from), GUTTER), right = Math.min(this.x(to), this.width);
    if (right - left < 1) return;
    const top = RULER, height = this.height - RULER;
    g.save();
    g.beginPath();
    g.rect(left, top, right - left, height);
    g.clip();
    g.strokeStyle = this.css.line;
    g.lineWidth = 1;
    g.beginPath();
    for (let x = left - height; x < right; x += 7) { g.moveTo(x, top + height); g.lineTo(x + height, top); }
    g.stroke();
    g.font = "600 11px system-ui, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    const text = `${name} ${time(to - from)}`, middle = (left + right) / 2, wide = g.measureText(text).width;
    if (wide + 10 < right - left) {
      g.fillStyle = this.css.bg;
      g.fillRect(middle - wide / 2 - 4, top + 6, wide + 8, 16);
      g.fillStyle = this.css.text;
      g.fillText(text, middle, top + 14);
    }
    g.restore();
  }

  _label(g, lane) {
    if (!lane.label) return;
    g.fillStyle = this.css.text;
    g.font = "11px system-ui, sans-serif";
    g.textAlign = "right";
    g.textBaseline = "middle";
    const middle = lane.y + (lane.segments ? 4 : lane.note ? 9 : lane.height / 2);
    g.fillText(lane.label, GUTTER - 8, middle);
    if (!lane.note) return;
    g.fillStyle = this.css.dim;
    g.font = "10px system-ui, sans-serif";
    g.fillText(lane.note, GUTTER - 8, middle + 13);
  }

  /** Names and edges of the events that are wide enough to carry them. */
  _names(g, lane) {
    const { view } = this, from = Math.max(0, lane.before(view.t0)), to = lane.before(view.t1);
    if (to - from > this.plot / 6) return;
    g.textAlign = "left";
    g.font = "11px system-ui, sans-serif";
    for (let i = from; i <= to; i++) {
      const left = Math.max(this.x(lane.from[i]), GUTTER), right = Math.min(this.x(lane.to[i]), this.width);
      if (right - left < 3) continue;
      g.fillStyle = this.css.bg;
      g.fillRect(right - 0.5, lane.y, 0.5, lane.height);
      if (right - left < 44 || (lane.kept && !this.filter(lane.instr[i]))) continue;
      g.fillStyle = "#fff";
      const text = lane.text(i), room = Math.floor((right - left - 6) / 6);
      g.fillText(text.length > room ? text.slice(0, room - 1) + "\u2026" : text, left + 4, lane.y + lane.height / 2 + 1);
    }
  }

  _ruler(g) {
    const span = this.view.t1 - this.view.t0;
    const raw = span / Math.max(2, this.plot / 110), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    g.font = "11px system-ui, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    const name = this.box.querySelector(".name");           // of two profiles: it lies over the ruler
    const end = name ? name.offsetLeft - 20 : this.width - 22;
    for (let k = Math.ceil(this.view.t0 / step); k * step <= this.view.t1; k++) {
      const x = this.x(k * step);
      g.fillStyle = this.css.line;
      g.fillRect(x, RULER - 4, 1, this.height);
      g.fillStyle = this.css.dim;
      if (x > GUTTER + 14 && x < end) g.fillText(tick(k * step, step), x, 9);
    }
    g.fillText(isMeasured(this.profile) ? "measured" : "predicted", GUTTER - 46, 9);
  }

  _curves(g, width, perPixel) {
    const out = new Float64Array(width), flow = this.throughput;
    for (let x = 0; x < width; x++) out[x] = this.moved[x] / perPixel / 1000;   // GB/s
    let most = 1;
    for (const v of out) if (v > most) most = v;
    flow.values = out.slice();
    flow.note = `up to ${most.toFixed(0)} GB/s`;
    this._area(g, flow, out, most);
    for (const curve of this.curves) {
      curve.pixels(out, width, this.view.t0, perPixel);
      this._area(g, curve, out, curve.full);
    }
  }

  _area(g, curve, values, full) {
    const { y, height } = curve, step = this.plot / values.length;
    g.fillStyle = this.css.lane;
    g.fillRect(GUTTER, y, this.plot, height);
    g.fillStyle = this.css.accent;
    g.globalAlpha = 0.75;
    g.beginPath();
    g.moveTo(GUTTER, y + height);
    let last = -1;
    for (let i = 0; i < values.length; i++) {
      const top = y + height - Math.min(1, values[i] / full) * (height - 2);
      if (top !== last) { g.lineTo(GUTTER + i * step, last < 0 ? top : last); g.lineTo(GUTTER + i * step, top); }
      last = top;
    }
    g.lineTo(this.width, last);
    g.lineTo(this.width, y + height);
    g.fill();
    g.globalAlpha = 1;
    this._label(g, curve);
  }

  // -- what follows the pointer and the selection ------------------------------------------------

  overlay() {
    const g = this.over.getContext("2d"), { css } = this;
    g.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, this.plot, this.height);
    g.clip();
    if (this.measure) {
      const [a, b] = this.measure.map((t) => this.x(t));
      g.fillStyle = css.accent;
      g.globalAlpha = 0.18;
      g.fillRect(Math.min(a, b), RULER, Math.abs(b - a), this.height);
      g.globalAlpha = 1;
    }
    for (const bad of this.profile.head.first_bad ?? []) this._bad(g, bad);
    if (this.selected >= 0) this._dependencies(g);
    if (this.hover) {
      g.fillStyle = css.text;
      g.globalAlpha = 0.6;
      g.fillRect(this.hover.x, RULER - 6, 1, this.height);
      g.globalAlpha = 1;
    }
    g.restore();
  }

  /** Mark the first instruction that wrote a NaN or an infinity. */
  _bad(g, { instr, what }) {
    const lane = this.laneOf(instr), x = this.x(this.profile.start[instr]);
    if (x < GUTTER || x > this.width) return;
    this._outline(g, instr, this.css.bad, 2);
    g.font = "600 10px system-ui, sans-serif";
    g.textAlign = "left";
    g.textBaseline = "middle";
    const text = `first ${what}`, wide = g.measureText(text).width;
    g.fillStyle = this.css.bg;
    g.fillRect(x, lane.y - 12, wide + 6, 12);
    g.fillStyle = this.css.bad;
    g.fillText(text, x + 3, lane.y - 6);
  }

  _dependencies(g) {
    const { css, profile, selected } = this;
    const { chain } = this;
    g.strokeStyle = css.mark;
    g.fillStyle = css.mark;
    let arrows = 0, drawn = Infinity;
    for (let k = 0; k + 1 < chain.length; k++) {
      const from = chain[k + 1], to = chain[k].by;
      g.lineWidth = k ? 1 : 2;
      g.globalAlpha = k ? 0.7 : 1;
      if (from.queued) {
        const lane = this.lanes[profile.queueOf(to)], x0 = this.x(profile.takes[from.by]), x1 = this.x(profile.takes[to]);
        if (x1 < GUTTER) break;
        if (x0 > this.width || x0 > drawn - 0.5) continue;      // outside, or less than a pixel more
        g.fillRect(x0, lane.y + lane.height - 4, Math.max(1, Math.min(x1, drawn) - x0), 4);
        drawn = x0;
      } else if (arrows < 1500 && this._arrow(g, from.by, to)) {
        arrows++;
      }
    }
    g.strokeStyle = g.fillStyle = css.accent;
    g.lineWidth = 1.5;
    g.globalAlpha = 0.85;
    const { succAt, succ } = profile;
    for (let k = succAt[selected]; k < Math.min(succAt[selected + 1], succAt[selected] + 60); k++) {
      this._arrow(g, selected, succ[k]);
    }
    g.globalAlpha = 1;
    this._outline(g, selected, css.text, 2);
    if (chain.length > 1) this._outline(g, chain[1].by, css.mark, 1.5);
  }

  laneOf(i) {
    const { col } = this.profile;
    return this.lanes[col.engine[i] === DMA ? DMA + col.row[i] : col.engine[i]];
  }

  _arrow(g, from, to) {
    const a = this.laneOf(from), b = this.laneOf(to), { start, end } = this.profile;
    const x0 = this.x(Math.min(end[from], start[to])), x1 = this.x(start[to]);
    if (Math.max(x0, x1) < GUTTER || Math.min(x0, x1) > this.width) return false;
    const y0 = a.y + a.height / 2, y1 = b.y + b.height / 2;
    const bend = Math.min(40, Math.max(12, Math.abs(x1 - x0) / 2));
    g.beginPath();
    g.moveTo(x0, y0);
    g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    g.stroke();
    g.beginPath();
    g.moveTo(x1, y1);
    g.lineTo(x1 - 6, y1 - 3.5);
    g.lineTo(x1 - 6, y1 + 3.5);
    g.fill();
    return true;
  }

  _outline(g, i, color, width) {
    const lane = this.laneOf(i), x0 = this.x(this.profile.start[i]), x1 = this.x(this.profile.end[i]);
    g.strokeStyle = color;
    g.lineWidth = width;
    g.strokeRect(x0 - 1, lane.y - 1, Math.max(2, x1 - x0) + 2, lane.height + 2);
  }

  /** What is at a point: {t, lane, event, instr} or {t, curve}. */
  under(x, y) {
    const t = this.t(x), perPixel = (this.view.t1 - this.view.t0) / this.plot;
    const stretch = this.profile.stretches.find(({ from, to }) => t >= from && t < to);
    if (stretch) return { t, stretch, instr: -1 };
    for (const lane of this.lanes) {
      if (y < lane.y || y > lane.y + lane.height) continue;
      const shown = lane.kept ?? lane, event = shown.hit(t, 3 * perPixel);
      return { t, lane: shown, event, instr: event < 0 ? -1 : shown.instr[event] };
    }
    for (const curve of [this.throughput, ...this.curves]) {
      if (y >= curve.y && y <= curve.y + curve.height) return { t, curve, instr: -1 };
    }
    return { t, instr: -1 };
  }

  rate(x) {
    const { values } = this.throughput;
    return values[Math.min(values.length - 1, Math.max(0, Math.floor((x - GUTTER) * this.scale)))];
  }

  select(i, scroll = true) {
    this.selected = i;
    this.chain = i >= 0 ? this.profile.chain(i) : [];
    if (i >= 0 && scroll) {
      const { start, end } = this.profile, { t0, t1 } = this.view;
      if (end[i] < t0 || start[i] > t1) {
        const middle = (start[i] + end[i]) / 2, half = (t1 - t0) / 2;
        this.view.set(middle - half, middle + half);
      }
    }
    this.overlay();
  }

  zoomTo(i) {
    const { start, end } = this.profile, span = Math.max(end[i] - start[i], 0.05);
    this.view.set(start[i] - 4 * span, end[i] + 4 * span);
  }
}

function rgb(color) {
  const n = parseInt(color.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

/** 16 steps from a ground colour to a colour. */
function shades(color, ground, most) {
  return Array.from({ length: 16 }, (_, i) =>
    word(color.map((c, k) => Math.round(ground[k] + (c - ground[k]) * most * i / 15))));
}

function tick(us, step) {
  if (step >= 1000) return `${us / 1000} ms`;
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return `${us.toFixed(Math.min(4, digits))} \u00b5s`;
}
