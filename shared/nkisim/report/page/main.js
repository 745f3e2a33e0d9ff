// Puts the page together and turns gestures into zoom, pan and selection.
"use strict";

const $ = (id) => document.getElementById(id);

class App {
  constructor(profiles) {
    this.profiles = profiles;
    this.at = 0;
    this.timelines = profiles.map((profile, k) => {
      const timeline = new Timeline(profile, new View(profile.total), $("timelines"));
      if (profiles.length > 1) {
        timeline.box.append(el("span", { class: "name" }, `${LETTERS[k]}: ${profile.name_}, ` +
          `${profile.head.target}, ${time(profile.head.latency_us)}`));
      }
      this.gestures(timeline, k);
      return timeline;
    });
    this.measured = profiles.length > 1 && isMeasured(profiles[0]);
    this.scales(true);
    this.tabs = [...(this.measured ? ["Against hardware"] : []), "Instructions", "Selected", "Regions", "Tensors", "Values", "Memory", "Roofline", "Findings", "Metrics", "Help"];
    const wrong = profiles[0].head.findings.some((f) => f.severity === "error");
    this.tab = this.measured ? "Against hardware" : profiles.length > 1 ? "Metrics" : wrong ? "Findings" : "Instructions";
    this.focus(0, true);
    for (const button of document.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this.act(button.dataset.do));
    }
    document.addEventListener("keydown", (event) => this.key(event));
    this.searching();
    const range = () => { $("range").textContent = `${time(this.view.t0 > 0 ? this.view.t0 : 0)} \u2013 ${time(this.view.t1)}`; };
    for (const t of this.timelines) t.view.watchers.push(range);
    range();
  }

  get view() { return this.timeline.view; }

  /** Let all timelines show one stretch of time, on one scale, or each its own. */
  scales(common) {
    const views = this.timelines.map((t) => t.view);
    this.common = common;
    for (const view of views) view.link(common && !this.measured ? views : null);
    if (this.measured) for (const view of views) view.link(views);
    for (const view of views) view.fit();
    const button = document.querySelector("[data-do=scale]");
    button.hidden = views.length < 2 || this.measured;
    button.textContent = common ? "Own scales" : "One scale";
  }

  get profile() { return this.profiles[this.at]; }

  get timeline() { return this.timelines[this.at]; }

  /** Make profile k the one that source and tabs speak of. */
  focus(k, force = false) {
    if (k === this.at && !force) return;
    this.at = k;
    this.timelines.forEach((t, i) => t.box.classList.toggle("current", i === k && this.timelines.length > 1));
    drawSource($("source"), this.profile, (place) => this.showPlace(place));
    drawAdvice($("advice"), this.profile, this);
    drawLight($("light"), this.profile);
    this.drawTabs();
  }

  drawTabs() {
    const { findings } = this.profile.head;
    $("tabs").replaceChildren(...this.tabs.map((name) => el("button", { role: "tab", "aria-controls": "panel",
      "aria-selected": `${name === this.tab}`, onclick: () => this.open(name) },
      name === "Findings" ? `Findings (${findings.length})` : name)));
    this.drawPanel();
  }

  open(name) { this.tab = name; this.drawTabs(); }

  drawPanel() {
    const { profile } = this;
    const draw = { "Against hardware": () => measuredPanel(this),
                   Instructions: () => this.found ? foundPanel(profile, this) : topPanel(profile, this),
                   Selected: () => selectedPanel(profile, this.timeline.selected, this),
                   Values: () => valuesPanel(profile, this.timeline.selected),
                   Memory: () => memoryPanel(profile, this.memoryTime ?? profile.total / 2, this),
                   Regions: () => regionsPanel(profile, this),
                   Tensors: () => tensorsPanel(profile, this),
                   Help: () => helpPanel(),
                   Roofline: () => rooflinePanel(this.profiles.filter((p) => !isMeasured(p))),
                   Findings: () => findingsPanel(profile, this),
                   Metrics: () => metricsPanel(this.profiles) };
    document.querySelector("main").classList.toggle("wide", this.tab === "Memory");
    $("panel").replaceChildren(...draw[this.tab]());
  }

  select(i) {
    this.timeline.select(i);
    selectPartner(this, i);
    const line = i < 0 ? -1 : this.profile.col.line[i];
    markSource($("source"), this.profile, line < 0 ? null : this.profile.placeOf[line]);
    if (i >= 0 && this.tab !== "Values") this.open("Selected"); else this.drawPanel();
  }

  zoomTo(i) { this.timeline.zoomTo(i); }

  /** Show only the instructions of one source line; the same line again shows all. */
  showPlace(place) {
    const { profile, timeline } = this, again = this.shown === `${this.at}:${place}`;
    this.shown = again ? null : `${this.at}:${place}`;
    timeline.show(again ? null : (i) => profile.col.line[i] >= 0 && profile.placeOf[profile.col.line[i]] === place);
    markSource($("source"), profile, again ? null : place);
  }

  showKind(label, engine) {
    const { profile } = this;
    this.shown = null;
    this.timeline.show((i) => profile.name(i) === label && profile.col.engine[i] === engine);
  }

  // -- search ------------------------------------------------------------------------------------

  searching() {
    const box = $("search");
    box.addEventListener("input", () => this.search(box.value));
    box.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") this.nextFound(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { box.value = ""; this.search(""); box.blur(); }
    });
  }

  /** Show only the instructions that a query finds, and how many there are. */
  search(query) {
    const { profile, timeline } = this;
    this.shown = null;
    this.found = query.trim() ? find(profile, query) : null;
    const chosen = this.found && new Set(this.found);
    timeline.show(chosen && ((i) => chosen.has(i)));
    $("found").textContent = this.found ? `${this.found.length.toLocaleString("en")} found` : "";
    if (this.found) this.open("Instructions");
  }

  /** Select the next of what was found, from the one that is selected. */
  nextFound(step) {
    const list = this.found;
    if (!list?.length) return;
    const at = list.indexOf(this.timeline.selected);
    const k = at < 0 ? (step > 0 ? 0 : list.length - 1) : (at + step + list.length) % list.length;
    this.select(list[k]);
    $("found").textContent = `${k + 1} of ${list.length.toLocaleString("en")}`;
  }

  clear() {
    this.shown = null;
    this.found = null;
    $("search").value = $("found").textContent = "";
    for (const t of this.timelines) { t.measure = null; t.show(null); t.select(-1); }
    markSource($("source"), this.profile, null);
    this.drawPanel();
  }

  act(what) {
    const done = { fit: () => this.view.fit(), in: () => this.view.zoom(0.5), out: () => this.view.zoom(2),
                   scale: () => this.scales(!this.common),
                   clear: () => this.clear(), chain: () => { this.select(this.profile.last()); this.view.fit(); } };
    done[what]?.();
  }

  // -- keyboard ----------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inText = event.target.closest?.("#source, #panel, #tabs, input");
    const keys = { w: () => this.view.zoom(0.7), "+": () => this.view.zoom(0.7), "=": () => this.view.zoom(0.7),
                   s: () => this.view.zoom(1.4), "-": () => this.view.zoom(1.4), a: () => this.view.pan(-0.2),
                   d: () => this.view.pan(0.2), 0: () => this.view.fit(), c: () => this.act("chain"),
                   Escape: () => this.clear(), f: () => this.timeline.selected >= 0 && this.zoomTo(this.timeline.selected),
                   "/": () => $("search").focus(), p: () => this.step("pred"), n: () => this.step("succ") };
    if (!inText) Object.assign(keys, { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1) });
    if (event.target.closest?.("input")) return;
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Select the neighbour on the lane, or along the dependencies. */
  step(where) {
    const { profile, timeline } = this, i = timeline.selected;
    if (i < 0) return this.select(0);
    if (where === "pred") return profile.blocker(i).by >= 0 && this.select(profile.blocker(i).by);
    if (where === "succ") {
      return profile.succAt[i] < profile.succAt[i + 1] && this.select(profile.succ[profile.succAt[i]]);
    }
    const lane = timeline.laneOf(i), k = lane.instr.indexOf(i) + where;
    if (k >= 0 && k < lane.count) this.select(lane.instr[k]);
  }

  // -- pointer -----------------------------------------------------------------------------------

  gestures(timeline, k) {
    const { base, view } = timeline, fingers = new Map();
    let moved = 0;
    const place = (e) => { const r = base.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    base.addEventListener("wheel", (e) => {
      e.preventDefault();
      const sideways = e.shiftKey ? e.deltaY || e.deltaX : e.deltaX;
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) view.pan(sideways / 800);
      else view.zoom(Math.exp(Math.max(-120, Math.min(120, e.deltaY)) * (e.ctrlKey ? 0.01 : 0.003)), timeline.t(place(e)[0]));
    }, { passive: false });
    base.addEventListener("pointerdown", (e) => {
      base.setPointerCapture(e.pointerId);
      fingers.set(e.pointerId, place(e));
      moved = 0;
      if (e.shiftKey) timeline.measure = [timeline.t(place(e)[0]), timeline.t(place(e)[0])];
    });
    base.addEventListener("pointermove", (e) => {
      const [x, y] = place(e), was = fingers.get(e.pointerId);
      if (!was) return this.hover(timeline, k, x, y, e);
      moved += Math.abs(x - was[0]) + Math.abs(y - was[1]);
      const other = [...fingers].find(([id]) => id !== e.pointerId)?.[1];
      fingers.set(e.pointerId, [x, y]);
      if (other) {
        const before = Math.abs(was[0] - other[0]), now = Math.abs(x - other[0]);
        if (before > 8 && now > 8) view.zoom(before / now, timeline.t((x + other[0]) / 2));
      } else if (e.shiftKey && timeline.measure) {
        timeline.measure[1] = timeline.t(x);
        this.tell(timeline, e, measured(timeline));
        timeline.overlay();
      } else if (moved > 3) {
        timeline.hover = null;
        $("tip").hidden = true;
        view.pan((was[0] - x) / timeline.plot);
      }
    });
    const up = (e) => {
      if (!fingers.delete(e.pointerId) || moved > 3 || e.type === "pointercancel" || e.shiftKey) return;
      const [x, y] = place(e), found = timeline.under(x, y);
      timeline.measure = null;
      this.focus(k);
      if (found.curve) { this.memoryTime = found.t; this.open("Memory"); } else this.select(found.instr);
    };
    base.addEventListener("pointerup", up);
    base.addEventListener("pointercancel", up);
    base.addEventListener("dblclick", (e) => {
      const { instr } = timeline.under(...place(e));
      if (instr >= 0) timeline.zoomTo(instr);
    });
    base.addEventListener("pointerleave", () => {
      for (const t of this.timelines) { t.hover = null; t.overlay(); }
      $("tip").hidden = true;
    });
  }

  hover(timeline, k, x, y, event) {
    const found = timeline.under(x, y);
    for (const t of this.timelines) { t.hover = x > GUTTER ? { x } : null; t.overlay(); }
    const { profile } = timeline, lines = [];
    if (x <= GUTTER) {
      const help = rowHelp(timeline, y);
      if (help) this.tell(timeline, event, help); else $("tip").hidden = true;
      return;
    }
    if (found.stretch) {
      lines.push(`${found.stretch.name} ${time(found.stretch.to - found.stretch.from)}`, found.stretch.about);
    } else if (found.instr >= 0) {
      const { lane, event } = found;
      lines.push(lane.text(event), ...describe(profile, found.instr).map(([key, text]) => `${key}: ${text}`));
      if (lane.segments) lines.splice(1, 1, `part of the transfer on ${lane.title}`);
      else if (lane.text(event).startsWith("trigger")) lines.splice(1, 1, `trigger of the transfer, ${time(lane.to[event] - lane.from[event])} on the queue of ${lane.title}`);
    } else if (found.curve) {
      const { curve } = found, psum = curve.label.startsWith("PSUM") ? 1 : 0;
      lines.push(`${curve.label}: ${curve.format ? curve.format(curve.at(found.t)) : `${timeline.rate(x).toFixed(1)} GB/s`}`,
                 `at ${time(found.t)}`);
      if (curve.label.endsWith("in use")) {
        for (const row of profile.holds(found.t, psum).slice(0, 8)) {
          lines.push(`${row.name}  ${row.place}  ${row.tiles} \u00d7 = ${bytes(row.bytes)}`);
        }
        if (this.tab === "Memory" && this.at === k) { this.memoryTime = found.t; this.drawPanel(); }
      }
    } else {
      const at = (c) => c.format(c.at(found.t));
      lines.push(time(found.t), ...timeline.curves.map((c) => `${c.label}: ${at(c)}`));
    }
    this.tell(timeline, event, lines);
  }

  tell(timeline, event, lines) {
    const tip = $("tip");
    tip.replaceChildren(el("b", {}, lines[0]), ...lines.slice(1).map((text) => el("div", {}, text)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 16 + width > innerWidth, low = event.clientY + 16 + height > innerHeight;
    tip.style.left = `${Math.max(4, right ? event.clientX - width - 12 : event.clientX + 16)}px`;
    tip.style.top = `${Math.max(4, low ? event.clientY - height - 12 : event.clientY + 16)}px`;
  }
}

/** How busy each engine is within the measured stretch. */
function measured(timeline) {
  const [a, b] = [...timeline.measure].sort((p, q) => p - q), lines = [`${time(b - a)}`];
  for (const lane of timeline.lanes) {
    if (lane.segments || !lane.label || lane.label.startsWith("DMA") || b <= a) continue;
    const busy = lane.sum(lane.before(b), b, lane.busy) - lane.sum(lane.before(a), a, lane.busy);
    lines.push(`${lane.label}: ${percent(busy / (b - a))} busy`);
  }
  return lines;
}

function banner(profile) {
  const { head } = profile;
  if (head.measured) return measuredBanner(profile);
  let text = `Predicted by nkisim for ${head.target} \u2013 not measured`;
  if (!head.calibrated) text += `; the model is not calibrated for ${head.target}`;
  else if (head.model_error) text += `; error of the model: ${head.model_error}`;
  return text;
}

/** The banner of all profiles; the model's error of each. */
function bannerOf(profiles) {
  const texts = profiles.map(banner), shared = texts.map((t) => t.split("; error of the model: "));
  if (new Set(texts).size === 1) return texts[0];
  if (profiles.some(isMeasured) || new Set(shared.map(([first]) => first)).size > 1) return [...new Set(texts)].join(" / ");
  return `${shared[0][0]}; error of the model: ${shared.map(([, error], k) => `${LETTERS[k]} ${error ?? "?"}`).join(", ")}`;
}

async function main() {
  try {
    const ids = ["profile", "compare", ...[...LETTERS].slice(2).map((_, k) => `compare${k + 2}`)];
    const profiles = (await Promise.all(ids.map(readProfile))).filter(Boolean);
    nameThem(profiles);
    $("title").textContent = titleOf(profiles);
    $("banner").textContent = bannerOf(profiles);
    drawFacts($("facts"), profiles);
    if (profiles[1] && isMeasured(profiles[0])) measuredCards($("cards"), ...profiles);
    else if (profiles[1]) drawComparison($("cards"), profiles);
    else drawCards($("cards"), profiles[0]);
    window.nkisim = new App(profiles);
    window.nkisim.loaded = performance.now();
  } catch (error) {
    $("trouble").textContent = `The profile could not be shown: ${error.message}`;
    $("trouble").hidden = false;
    throw error;
  }
}

main();
