// SBUF and PSUM over time: who lies where, who wrote it, who reads it.
"use strict";

const MAP = { sbuf: 200, bank: 16, gap: 30, top: 18 };

/** Who uses which tile, both ways; made when it is first asked for. */
function usesOf(profile) {
  if (profile.uses) return profile.uses;
  const { use_tile: tile, use_instr: instr } = profile.col, group = (keys, count) => {
    const at = new Int32Array(count + 1), rows = new Int32Array(keys.length);
    for (const k of keys) at[k + 1]++;
    for (let k = 0; k < count; k++) at[k + 1] += at[k];
    const next = at.slice();
    keys.forEach((k, row) => { rows[next[k]++] = row; });
    return (k) => rows.subarray(at[k], at[k + 1]);
  };
  return profile.uses = { ofTile: group(tile, profile.col.tile_name.length), ofInstr: group(instr, profile.count) };
}

/** What a tile is called, and where it lies. */
function tileText(profile, k) {
  const { col, head } = profile, name = head.names[col.tile_name[k]];
  const at = col.tile_at[k], to = at + col.tile_bytes[k] - 1;
  const where = col.tile_memory[k] ? `PSUM bank${to - at >= head.psum_bank_bytes ? "s" : ""} ${bankOf(head, at)}${to - at >= head.psum_bank_bytes ? `\u2013${bankOf(head, to)}` : ""}`
    : `SBUF bytes ${at.toLocaleString("en")}\u2013${to.toLocaleString("en")}`;
  return { name: name === "?" ? "a tile" : name, where, placed: Boolean(col.tile_flag[k] & 1) };
}

/** Tiles of one name have one colour, and names that follow each other different ones. */
const tileColor = (profile, k) => PALETTE[profile.col.tile_name[k] % PALETTE.length];

const bankOf = (head, byte) => Math.floor(byte / head.psum_bank_bytes);

class MemoryMap {
  constructor(profile, view, app) {
    Object.assign(this, { profile, view, app, chosen: -1 });
    const { col, head } = profile, tick = head.tick_us, count = col.tile_name.length;
    this.from = Float64Array.from(col.tile_first, (t) => t * tick + profile.launch);
    this.to = Float64Array.from(col.tile_last, (t) => t * tick + profile.launch);
    this.order = ordered([...Array(count).keys()], this.from);
    this.place = new Int32Array(count);
    this.order.forEach((k, at) => { this.place[k] = at; });
    this.used = [0, 0];
    for (let k = 0; k < count; k++) {
      const m = col.tile_memory[k];
      this.used[m] = Math.max(this.used[m], col.tile_at[k] + col.tile_bytes[k]);
    }
    const full = this.used[0] > head.sbuf_bytes / 4 ? Math.max(this.used[0], head.sbuf_bytes) : Math.max(this.used[0] * 1.15, 64);
    const banks = Math.max(head.psum_banks, Math.ceil(this.used[1] / head.psum_bank_bytes));
    this.parts = [{ y: MAP.top, height: MAP.sbuf, full, label: "SBUF", note: `${bytes(this.used[0])} of ${bytes(head.sbuf_bytes)}` }];
    if (this.used[1]) this.parts.push({ y: MAP.top + MAP.sbuf + MAP.gap, height: MAP.bank * banks, full: banks * head.psum_bank_bytes, label: "PSUM", banks });
    const last = this.parts.at(-1);
    this.height = last.y + last.height + 6;
    this.base = el("canvas", { tabindex: 0, role: "img", id: "memorymap",
      "aria-label": `Map of SBUF and PSUM over time: ${count} tiles. Left and right arrows: the tile before and after; up and down: others that live at the same time.` });
    this.base.addEventListener("keydown", (e) => this.key(e));
    this.base.addEventListener("click", (e) => this.choose(this.under(e)));
    this.base.addEventListener("pointermove", (e) => this.hover(e));
    this.base.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    this.base.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.shiftKey) return;                  // plain wheel scrolls the panel
      e.preventDefault();
      if (e.shiftKey) view.pan((e.deltaY || e.deltaX) / 800);
      else view.zoom(Math.exp(Math.max(-120, Math.min(120, e.deltaY)) * 0.005), this.t(e.offsetX));
    }, { passive: false });
    view.watchers.push(() => this.dirty());
    new ResizeObserver(() => this.resize()).observe(this.base);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.dirty());
  }

  get plot() { return this.width - GUTTER; }

  x(t) { return GUTTER + (t - this.view.t0) / (this.view.t1 - this.view.t0) * this.plot; }

  t(x) { return this.view.t0 + (x - GUTTER) / this.plot * (this.view.t1 - this.view.t0); }

  resize() {
    this.scale = Math.min(window.devicePixelRatio || 1, 2);
    this.width = Math.max(this.base.clientWidth, 260);
    this.base.width = Math.round(this.width * this.scale);
    this.base.height = Math.round(this.height * this.scale);
    this.draw();
  }

  dirty() {
    if (this.waiting || !this.base.isConnected) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  /** The box of a tile on the canvas: [x, y, width, height]. */
  box(k) {
    const { col } = this.profile, part = this.parts[col.tile_memory[k]], x = this.x(this.from[k]);
    const low = part.y + part.height * (1 - col.tile_at[k] / part.full), high = part.height * col.tile_bytes[k] / part.full;
    return [x, low - high, Math.max(1, this.x(this.to[k]) - x), Math.max(1, high)];
  }

  draw() {
    if (!this.width) return;
    const g = this.base.getContext("2d"), { col, head } = this.profile, style = getComputedStyle(document.documentElement);
    const css = Object.fromEntries(["bg", "lane", "line", "text", "dim", "accent", "mark", "panel"].map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
    g.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    g.fillStyle = css.panel;
    g.fillRect(0, 0, this.width, this.height);
    g.textBaseline = "middle";
    for (const part of this.parts) this.ground(g, part, css, head);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, this.plot, this.height);
    g.clip();
    g.textAlign = "left";
    g.font = "11px system-ui, sans-serif";
    const many = this.order.length > 3000;
    for (const k of this.order) {
      if (this.to[k] < this.view.t0 || this.from[k] > this.view.t1) continue;
      const [x, y, w, h] = this.box(k), lost = col.tile_over[k] >= 0;
      g.fillStyle = lost ? css.mark : tileColor(this.profile, k);
      g.fillRect(x, y, w, h);
      if (!many && w > 4 && h > 3) { g.strokeStyle = css.bg; g.lineWidth = 1; g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); }
      if (w < 26 || h < 11) continue;
      const left = Math.max(x, GUTTER), room = Math.floor((Math.min(x + w, this.width) - left - 8) / 6.2);
      const text = tileText(this.profile, k).name + (lost ? ": overwritten, never read" : "");
      if (room < 1) continue;
      g.fillStyle = lost ? css.bg : "#fff";
      g.fillText(text.length > room ? `${text.slice(0, Math.max(1, room - 1))}\u2026` : text, left + 4, y + h / 2);
    }
    if (this.chosen >= 0) this.outline(g, css);
    g.restore();
  }

  ground(g, part, css, head) {
    g.fillStyle = css.lane;
    g.fillRect(GUTTER, part.y, this.plot, part.height);
    g.textAlign = "right";
    g.font = "600 11px system-ui, sans-serif";
    g.fillStyle = css.text;
    g.fillText(part.label, GUTTER - 8, part.y - 8);
    g.font = "10px system-ui, sans-serif";
    g.fillStyle = css.dim;
    if (part.banks) {
      for (let b = 0; b < part.banks; b++) {
        const y = part.y + part.height - (b + 0.5) * MAP.bank;
        g.fillStyle = css.dim;
        g.fillText(b < head.psum_banks ? `bank ${b}` : "beyond", GUTTER - 8, y);
        g.fillStyle = css.line;
        g.fillRect(GUTTER, y - MAP.bank / 2, this.plot, 0.5);
      }
      return;
    }
    for (let n = 0; n <= 4; n++) {
      const y = part.y + part.height * (1 - n / 4);
      g.fillStyle = css.dim;
      g.fillText(bytes(part.full * n / 4), GUTTER - 8, Math.min(y, part.y + part.height - 5) + (n === 4 ? 5 : 0));
      g.fillStyle = css.line;
      g.fillRect(GUTTER, y, this.plot, 0.5);
    }
    if (part.full > head.sbuf_bytes) {
      const y = part.y + part.height * (1 - head.sbuf_bytes / part.full);
      g.fillStyle = css.mark;
      g.fillRect(GUTTER, y, this.plot, 1.5);
    }
  }

  /** The chosen tile, and when it is written (full triangles) and read (empty ones). */
  outline(g, css) {
    const { profile, chosen } = this, [x, y, w, h] = this.box(chosen);
    g.strokeStyle = css.text;
    g.lineWidth = 2.5;
    g.strokeRect(x, y, w, h);
    g.lineWidth = 1.5;
    for (const row of usesOf(profile).ofTile(chosen)) {
      const at = this.x(profile.start[profile.col.use_instr[row]]);
      g.beginPath();
      g.moveTo(at - 4, y + h + 8);
      g.lineTo(at, y + h + 1);
      g.lineTo(at + 4, y + h + 8);
      g.closePath();
      g.fillStyle = profile.col.use_write[row] ? css.text : css.bg;
      g.fill();
      g.stroke();
    }
  }

  under(event) {
    const { offsetX: px, offsetY: py } = event;
    let best = -1;
    for (const k of this.order) {
      const [x, y, w, h] = this.box(k);
      if (px >= x - 1 && px <= x + w + 1 && py >= y && py <= y + h && (best < 0 || this.to[k] - this.from[k] < this.to[best] - this.from[best])) best = k;
    }
    return best;
  }

  hover(event) {
    const k = event.offsetX > GUTTER ? this.under(event) : -1;
    if (k < 0) { $("tip").hidden = true; return; }
    const { name, where } = tileText(this.profile, k), c = this.profile.col;
    this.app.tell(null, event, [name, `${where}, ${bytes(c.tile_bytes[k])} a partition`,
      `${time(this.from[k])} to ${time(this.to[k])}`, this.profile.place(c.tile_line[k]),
      c.tile_over[k] >= 0 ? "overwritten before it was read" : "click: who writes and reads it"]);
  }

  choose(k) {
    this.chosen = k;
    if (k >= 0) {
      this.app.memoryTime = (this.from[k] + this.to[k]) / 2;
      if (this.to[k] < this.view.t0 || this.from[k] > this.view.t1) {
        const half = (this.view.t1 - this.view.t0) / 2;
        this.view.set(this.app.memoryTime - half, this.app.memoryTime + half);
      }
    }
    this.app.drawPanel();
    this.draw();
  }

  /** The next tile in order of time (step 1 or -1), or, `beside`, at the same time above or below. */
  step(step, beside = false) {
    const { chosen: k, order, profile: { col } } = this;
    if (!order.length) return;
    if (k < 0) return this.choose(order[0]);
    if (!beside) return this.choose(order[Math.min(order.length - 1, Math.max(0, this.place[k] + step))]);
    const at = (j) => col.tile_memory[j] * -1e12 + col.tile_at[j];
    let best = -1;
    for (const j of order) {
      if (this.from[j] >= this.to[k] || this.to[j] <= this.from[k] || (at(j) - at(k)) * step <= 0) continue;
      if (best < 0 || (at(j) - at(best)) * step < 0) best = j;
    }
    if (best >= 0) this.choose(best);
  }

  key(event) {
    const done = { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
                   ArrowUp: () => this.step(1, true), ArrowDown: () => this.step(-1, true) }[event.key];
    if (!done) return;
    event.preventDefault();
    event.stopPropagation();
    done();
    this.base.focus();
  }
}

// -- the tab ---------------------------------------------------------------------------------------

function memoryPanel(profile, t, app) {
  const dim = (text) => el("p", { class: "dim" }, text);
  if (!profile.col.tile_name) return memoryTables(profile, t);
  app.maps ??= new Map();
  if (!app.maps.has(profile)) app.maps.set(profile, new MemoryMap(profile, app.view, app));
  const map = app.maps.get(profile), lost = profile.col.tile_over.filter((k) => k >= 0).length;
  const bar = el("p", { class: "toolbar" },
    el("button", { onclick: () => map.step(-1) }, "Previous tile"), el("button", { onclick: () => map.step(1) }, "Next tile"));
  if (lost) bar.append(el("button", { class: "bad", onclick: () => map.choose(map.order.find((k) => profile.col.tile_over[k] >= 0)) },
    `${lost} tile${lost === 1 ? "" : "s"} overwritten before anybody read ${lost === 1 ? "it" : "them"}`));
  const placed = profile.col.tile_flag.some((f) => f & 1), drawn = profile.col.tile_flag.some((f) => !(f & 1));
  return [dim("Bytes of a partition, from bottom to top, over the time of the timeline above; all partitions lie side by side. Click a tile." +
              (drawn ? ` Tiles ${placed ? "that the kernel did not place" : "of the compiler"} are drawn where they fit: how much there is, and when, is predicted; the address is not.` : "")),
          bar, map.base, el("div", { class: "flow", "aria-live": "polite" }, ...flow(profile, map, app)), ...memoryTables(profile, t)];
}

/** Who wrote the chosen tile and from what, who reads it and what comes of it. */
function flow(profile, map, app) {
  const k = map.chosen, { col } = profile;
  if (k < 0) return [];
  const { name, where, placed } = tileText(profile, k), uses = usesOf(profile);
  const lines = el("p", {}, swatch(tileColor(profile, k)), el("b", {}, name),
    ` ${where}${placed ? ", where the kernel placed it" : ""}; ${time(map.from[k])} to ${time(map.to[k])}`);
  const out = [lines], over = col.tile_over[k];
  if (over >= 0) {
    out.push(el("p", { class: "bad" }, "It was never read: ", tileButton(profile, map, over),
      ` was written over its bytes at ${time(map.from[over])} (${profile.place(col.tile_line[over])}).`));
  }
  const writers = [], readers = [];
  for (const row of uses.ofTile(k)) (col.use_write[row] ? writers : readers).push(col.use_instr[row]);
  out.push(el("div", { class: "columns" }, side("Written by", writers, profile, map, app, false), side("Read by", readers, profile, map, app, true)));
  return out;
}

const FLOW_ROWS = 12, FLOW_TILES = 8;

/** Instructions that wrote or read the chosen tile, a row for each line; and what they read or wrote besides. */
function side(title, instrs, profile, map, app, forward) {
  const box = el("section", { "aria-label": title }, el("h3", {}, `${title}${instrs.length ? "" : ": none"}`)), list = el("ul");
  const groups = new Map();
  for (const i of new Set(instrs)) {
    const key = `${profile.name(i)} ${profile.col.line[i]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  for (const group of [...groups.values()].slice(0, FLOW_ROWS)) {
    const i = group[0], more = group.length > 1 ? ` and ${group.length - 1} more times` : "";
    const row = el("li", {}, el("button", { onclick: () => app.select(i) }, profile.name(i)),
      ` ${profile.place(profile.col.line[i])}, ${time(profile.start[i])}${more}`);
    const tiles = new Set(), far = new Set();
    for (const j of group) {
      for (const use of usesOf(profile).ofInstr(j)) {
        if (Boolean(profile.col.use_write[use]) === forward && profile.col.use_tile[use] !== map.chosen) tiles.add(profile.col.use_tile[use]);
      }
      for (const { role, text } of profile.operands(j)) {
        if (text.includes("hbm ") && (role !== "reads") === forward) far.add(text.startsWith("hbm ") ? "a tensor" : text.split(": hbm ")[0]);
      }
    }
    if (tiles.size || far.size) {
      const buttons = [...tiles].slice(0, FLOW_TILES).flatMap((k) => [" ", tileButton(profile, map, k)]);
      if (tiles.size > FLOW_TILES) buttons.push(` and ${tiles.size - FLOW_TILES} more`);
      row.append(el("div", { class: "dim" }, forward ? "to" : "from", ...buttons, ...[...far].map((name) => ` ${name} in HBM`)));
    }
    list.append(row);
  }
  if (groups.size > FLOW_ROWS) list.append(el("li", { class: "dim" }, `and ${(groups.size - FLOW_ROWS).toLocaleString("en")} more lines`));
  if (groups.size) box.append(list);
  return box;
}

function tileButton(profile, map, k) {
  return el("button", { onclick: () => map.choose(k) }, swatch(tileColor(profile, k)), tileText(profile, k).name);
}

function memoryTables(profile, t) {
  const out = [el("p", { class: "dim" }, `In memory at ${time(t)} (move over the timeline; click a curve to keep a time):`)];
  for (const [title, psum, all] of [["SBUF", 0, profile.head.sbuf_bytes], ["PSUM", 1, profile.head.psum_banks * profile.head.psum_bank_bytes]]) {
    const rows = profile.holds(t, psum), sum = rows.reduce((a, r) => a + r.bytes, 0);
    out.push(el("p", {}, el("b", {}, `${title}: ${bytes(sum)} of ${bytes(all)} a partition`)));
    if (rows.length) {
      out.push(rowsTable([["tensor"], ["made at"], ["tiles", "num"], ["bytes a partition", "num"]],
        rows.slice(0, 40).map((r) => el("tr", {}, td(r.name), td(r.place, "mono"), num(`${r.tiles}`), num(bytes(r.bytes))))));
    }
  }
  return out;
}
