// Everything beside the timeline: cards, source, tables, roofline. All text is set as text.
"use strict";

const swatch = (color) => el("span", { class: "sw", css: { background: color } });

function rowsTable(heads, rows) {
  const head = el("tr", {}, ...heads.map(([text, kind]) => el("th", kind ? { class: kind } : {}, text)));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
}

/** A table row that does something on click or Enter. */
function goRow(action, ...cells) {
  return el("tr", { class: "go", tabindex: 0, onclick: action,
                    onkeydown: (e) => { if (e.key === "Enter") action(); } }, ...cells);
}

const td = (text, kind) => el("td", kind ? { class: kind } : {}, text);
const num = (text) => td(text, "num");

// -- key figures ---------------------------------------------------------------------------------

const CARDS = {
  "latency (nki.benchmark)": "From the launch to the last completion: what nki.benchmark measures, and what shares on this page are of.",
  "total_time (profile)": "The latency and what the runtime does around it: what neuron-profile shows. Its metrics are shares of this time.",
  "limited by": "The engine that works most of the time after the launch. latency: none does; instructions wait for each other, or for DMAs to begin.",
  "floor of the job": "No kernel that reads these inputs, writes these outputs and makes these products is faster.",
  "DMA rate": "Bytes that the DMA engines moved, by the latency, and their peak. A core alone may take more than its share of HBM's bandwidth.",
};

function cardsOf(profile, engines = 3) {
  const { head } = profile, m = head.metrics;
  const share = (name) => head.engine_busy[name] ?? m[`${name === "dma" ? "dma" : `${name}_engine`}_active_time_percent`];
  const busy = Object.fromEntries(ENGINES.map((name) => [name, share(name)]));
  const list = [
    ["latency (nki.benchmark)", time(head.latency_us), head.latency_us, -1],
    ["total_time (profile)", time(head.profile_total_us), head.profile_total_us, -1],
    ["limited by", head.bound],
  ];
  if (head.floor) list.splice(1, 0, ["floor of the job", time(head.floor.floor_us)], ["latency / floor", `${(head.latency_us / head.floor.floor_us).toFixed(2)}`, head.latency_us / head.floor.floor_us, -1]);
  for (const name of [...ENGINES].sort((a, b) => (busy[b] ?? 0) - (busy[a] ?? 0)).slice(0, engines)) {
    if ((busy[name] ?? 0) > 0.004) {
      list.push([`${ENGINE_NAMES[ENGINES.indexOf(name)]} active`, percent(busy[name])]);
    }
  }
  if (head.flops) list.push(["MFU (of bf16)", percent(m.mfu_estimated_percent), m.mfu_estimated_percent, 1]);
  list.push(["DMA transfers", `${head.dma_transfer_count}`, head.dma_transfer_count, 0],
            ["HBM read + write", `${bytes(head.hbm_read_bytes)} + ${bytes(head.hbm_write_bytes)}`],
            ["DMA rate", ...dmaRate(profile)],
            ["SBUF, PSUM peak", `${bytes(head.sbuf_peak_bytes)}, ${head.psum_peak_banks} bank${head.psum_peak_banks === 1 ? "" : "s"}`]);
  return list;
}

/** How fast the DMA engines move bytes in the latency: text, number, no better way. */
function dmaRate({ head }) {
  const rate = head.metrics.dma_transfer_total_bytes / head.latency_us / 1000;
  if (!(rate >= 0)) return ["?"];
  return [`${short(rate)}${head.dma_gbps ? ` of ${head.dma_gbps.toFixed(0)}` : ""} GB/s`, rate, 0];
}

/** What to change first: at most three sentences, each with its line. */
function drawAdvice(host, shown, app) {
  const profile = app.profiles.find((p) => p === shown && !isMeasured(p)) ?? app.profiles.find((p) => !isMeasured(p)) ?? shown;
  const { advice, verdict } = profile.head;
  if (!advice?.length) { host.replaceChildren(el("p", { class: "dim" }, verdict ?? "")); return; }
  const rows = advice.map((a) => el("li", {}, a.place ? el("button", { class: "mono",
    onclick: () => { app.focus(app.profiles.indexOf(profile)); if (a.line >= 0) app.showPlace(profile.placeOf[a.line]); } }, a.place) : "", ` ${a.text}`));
  const which = app.profiles.length > 1 ? ` in ${LETTERS[app.profiles.indexOf(profile)]}` : "";
  const after = profile.head.findings.some((f) => f.severity === "error") ? ", once its errors are mended" : "";
  host.replaceChildren(el("h2", {}, `What to change first${which}${after}`), el("ol", {}, ...rows));
}

function drawCards(host, profile) {
  const { first_bad: bad } = profile.head;
  host.replaceChildren(...cardsOf(profile).map(([label, text]) => el("div", { class: "card", title: CARDS[label] ?? "" }, el("b", {}, text), el("span", {}, label))),
    ...(bad ?? []).map((b) => el("div", { class: "card" }, el("b", { class: "bad" }, `${b.place || b.name}`),
      el("span", {}, `first ${b.what}: instruction ${b.instr}, ${b.name}`))));
}

/** How b stands to a: "177\u00d7", "\u221212.3 %", "same". */
function ratio(a, b) {
  if (a === b) return "same";
  if (!a || !b || a < 0 || b < 0) return a ? "none" : "new";
  const r = b / a, times = (x) => `${x >= 9.95 ? x.toFixed(0) : x.toFixed(1)}\u00d7`;
  if (r >= 2) return times(r);
  if (r <= 0.5) return `1/${times(1 / r)}`;
  return `${r > 1 ? "+" : "\u2212"}${(Math.abs(r - 1) * 100).toFixed(1)} %`;
}

/** Key figures of two to eight profiles, a column each; how each differs from A. */
function drawComparison(host, profiles) {
  const cards = profiles.map((p) => new Map(cardsOf(p, ENGINES.length).map((c) => [c[0], c])));
  const labels = [...new Set(cards.flatMap((c) => [...c.keys()]))];
  const rows = labels.map((label) => el("tr", {}, td(label, "dim"), ...cards.map((c, k) => {
    const [, text, value, better] = c.get(label) ?? [], first = cards[0].get(label)?.[2], cell = num(text ?? "\u2013");
    if (!k || value === undefined || first === undefined) return cell;
    const good = !better || value === first ? "dim" : (better > 0) === value > first ? "good" : "bad";
    cell.append(" ", el("i", { class: good }, ratio(first, value)));
    return cell;
  })));
  host.replaceChildren(el("div", { class: "comparison" },
    rowsTable([["compared with A"], ...profiles.map((p, k) => [`${LETTERS[k]}: ${p.name_}`, "num"])], rows)));
}

// -- source --------------------------------------------------------------------------------------

function drawSource(host, profile, onplace) {
  const sums = profile.lineTime.map((times) => [...times.values()].reduce((a, b) => a + b, 0));
  const places = new Map();
  profile.places.forEach(([file, number], p) => { if (sums[p] > 0) places.set(`${file}:${number}`, p); });
  const most = Math.max(...sums, 1e-9), rows = [];
  profile.sourceRows = [];
  profile.head.files.forEach((file, f) => {
    rows.push(el("h3", {}, file.name + (file.text.length ? "" : " (source not available)")));
    file.text.forEach((text, k) => {
      const number = file.first + k, place = places.get(`${f}:${number}`);
      const bar = el("span", { class: "b" });
      if (place !== undefined) {
        profile.lineTime[place].forEach((us, kind) => {
          bar.append(el("span", { title: `${profile.labels[kind]} ${time(us)}`,
            css: { width: `${64 * us / most}px`, background: PALETTE[profile.colorOfKind[kind]] } }));
        });
      }
      const cells = [el("span", { class: "t" }, place === undefined ? "" : time(sums[place])), bar,
                     el("span", { class: "n" }, `${number}`), el("span", {}, text || " ")];
      const row = place === undefined ? el("div", { class: "src" }, ...cells)
        : el("button", { class: "src hot", onclick: () => onplace(place),
                         title: "Show only this line in the timeline" }, ...cells);
      if (place !== undefined) profile.sourceRows[place] = row;
      rows.push(row);
    });
  });
  host.replaceChildren(...rows);
  const hottest = sums.indexOf(Math.max(...sums));
  const row = profile.sourceRows[hottest];
  const top = row ? row.offsetTop - host.offsetTop : 0;     // what is in sight needs no scrolling
  if (top > host.clientHeight - 20) host.scrollTop = top - host.clientHeight / 2;
}

function markSource(host, profile, place) {
  for (const row of host.querySelectorAll(".on")) row.classList.remove("on");
  const row = place === null ? null : profile.sourceRows?.[place];
  if (!row) return;
  row.classList.add("on");
  const top = row.offsetTop - host.offsetTop;
  if (top < host.scrollTop || top > host.scrollTop + host.clientHeight - 20) {
    host.scrollTop = top - host.clientHeight / 2;
  }
}

// -- tabs ----------------------------------------------------------------------------------------

function topPanel(profile, app) {
  const rows = profile.top.map((row) => goRow(() => app.showKind(row.label, row.engine),
    el("td", {}, swatch(PALETTE[row.color]), row.label), td(ENGINE_NAMES[row.engine]),
    num(`${row.count}`), num(time(row.time)), num(time(row.time / row.count)), num(time(row.longest))));
  return [rowsTable([["instruction"], ["engine"], ["count", "num"], ["time", "num"], ["mean", "num"],
                     ["longest", "num"]], rows),
          el("p", { class: "dim" }, "Times of DMA transfers that overlap add up. Click a row to see " +
                                    "only these in the timeline.")];
}

function describe(profile, i) {
  const { col, head } = profile, wait = profile.start[i] - profile.issue[i];
  const engine = ENGINE_NAMES[col.engine[i]] + (col.engine[i] === DMA && col.queue[i] >= 0
    ? ` (queue of ${ENGINE_NAMES[col.queue[i]]})` : "");
  const kind = head.kinds[col.kind[i]], { by, queued } = profile.blocker(i);
  const list = [["engine", engine],
                ["time", `${time(profile.start[i])} to ${time(profile.end[i])}: ` +
                         `${time(profile.end[i] - profile.start[i])}`]];
  if (wait > 0.0005) {
    list.push([col.engine[i] === DMA ? "from trigger to first byte" : "in the queue", time(wait)]);
  }
  if (kind.moves) list.push(["moves", `${bytes(kind.bytes)}, ` +
    `${(kind.bytes / Math.max(1e-6, profile.end[i] - profile.start[i]) / 1000).toFixed(1)} GB/s` +
    (kind.descriptors ? `, ${kind.descriptors.toLocaleString("en")} descriptor${kind.descriptors === 1 ? "" : "s"} of ${bytes(kind.bytes / kind.descriptors)}` : "")]);
  for (const { role, text } of profile.operands(i)) list.push([role, text]);
  if (col.line[i] >= 0) list.push([profile.place(col.line[i]), profile.sourceText(col.line[i])]);
  if (profile.loops(i)) list.push(["loop iteration", profile.loops(i)]);
  if (by >= 0) {
    list.push([queued ? "queued behind" : "waited for", `${profile.name(by)} (${ENGINE_NAMES[col.engine[by]]}, ` +
               `ends ${time(queued ? profile.leaves[by] : profile.end[by])}) ${profile.place(col.line[by])}`]);
  }
  const why = profile.reasons(i);
  if (why.length) list.push(["why", why.join("; ")]);
  return list;
}

function selectedPanel(profile, i, app) {
  if (i < 0) return [el("p", { class: "dim" }, "Click an instruction in the timeline.")];
  const rows = describe(profile, i).map(([key, text]) =>
    el("tr", {}, td(key, "dim"), td(text, key.includes(":") ? "mono" : "")));
  const chain = profile.chain(i), from = profile.succAt[i], to = profile.succAt[i + 1];
  const shares = Object.entries(profile.shares(chain)).map(([name, us]) =>
    el("tr", {}, td(name), num(time(us)), num(percent(us / profile.end[i]))));
  const buttons = el("p", {});
  if (chain[1]) buttons.append(el("button", { onclick: () => app.select(chain[1].by) }, "What it waited for"), " ");
  if (to > from) buttons.append(el("button", { onclick: () => app.select(profile.succ[from]) }, `What waited for it (${to - from})`), " ");
  buttons.append(el("button", { onclick: () => app.zoomTo(i) }, "Zoom to it"));
  return [el("p", {}, swatch(PALETTE[profile.colorOfKind[profile.col.kind[i]]]),
             el("b", {}, profile.name(i)), el("span", { class: "dim" }, `  instruction ${i}`)),
          el("table", {}, el("tbody", {}, ...rows)), buttons,
          el("p", {}, `The ${chain.length} instructions that held each other back until here (pink; ` +
                      "blue: what waited for it), and where their time went:"),
          el("table", {}, el("tbody", {}, ...shares))];
}

function findingsPanel(profile, app) {
  const { findings } = profile.head;
  if (!findings.length) return [el("p", {}, "No findings: no hazard, no undefined read, no alias.")];
  return findings.map((f) => {
    const places = el("p", { class: "mono" });
    for (const [line, text] of [[f.line, f.place], [f.other_line, f.other]]) {
      if (!text) continue;
      places.append(line >= 0 ? el("button", { onclick: () => app.showPlace(profile.placeOf[line]) }, text) : text, " ");
    }
    return el("div", {}, el("p", {}, el("b", { class: f.severity === "note" ? "dim" : "bad" }, `${f.severity} ${f.id} `), f.text), places);
  });
}

function metricsPanel(profiles) {
  const all = profiles.map((p) => p.head.metrics), rows = [];
  const show = (v) => typeof v === "number" && !Number.isInteger(v) ? `${Number(v.toPrecision(5))}` : `${v}`;
  for (const name of Object.keys(Object.assign({}, ...all)).sort()) {
    const cells = [td(name)], a = all[0][name];
    all.forEach((metrics, k) => {
      const b = metrics[name];
      cells.push(num(show(b ?? "-")));
      if (k) cells.push(num(typeof a === "number" && typeof b === "number" ? ratio(a, b) : ""));
    });
    rows.push(el("tr", {}, ...cells));
  }
  const heads = all.length > 1 ? [["metric"], ...all.flatMap((_, k) => k ? [[LETTERS[k], "num"], [`${LETTERS[k]} against A`, "num"]] : [["A", "num"]])]
    : [["metric"], ["predicted", "num"]];
  return [rowsTable(heads, rows), el("p", { class: "dim" }, "Names and units as neuron-profile prints them: " +
    "seconds, bytes, and _percent as a fraction of 1.")];
}

// -- roofline ------------------------------------------------------------------------------------

function rooflinePanel(profiles) {
  const { head } = profiles[0], W = 520, H = 300, L = 54, B = 34, seconds = (p) => p.head.latency_us / 1e6;
  const points = [];
  profiles.forEach((p, k) => {
    const moved = p.head.hbm_read_bytes + p.head.hbm_write_bytes, tag = profiles.length > 1 ? " " + LETTERS[k] : "";
    const kinds = p.head.kinds;
    let elements = 0;
    for (let i = 0; i < p.count; i++) elements += kinds[p.col.kind[i]].elementwise;
    for (const [what, work] of [["matmul", p.head.flops], ["elementwise", elements]]) {
      if (work && moved) points.push({ text: what + tag, x: work / moved, y: work / seconds(p) / 1e12, what });
    }
  });
  if (!points.length) return [el("p", {}, "The kernel computes nothing, or moves nothing to or from HBM: no roofline.")];
  const roofs = [["elementwise, Vector Engine", head.elementwise_tflops]], peaks = head.peak_tflops;
  const dtypes = new Set(profiles.flatMap((p) => p.head.kinds.filter((k) => k.flops).map((k) => k.operands.at(-1)[1])));
  for (const dtype of dtypes) roofs.push([`matmul ${dtype}`, peaks[dtype] ?? peaks.bfloat16]);
  const band = Math.max(head.hbm_gbps, head.dma_gbps ?? 0) / 1000;
  const xs = [...points.map((p) => p.x), ...roofs.map(([, y]) => y / band)];
  const ys = [...points.map((p) => p.y), ...roofs.map(([, y]) => y)];
  const x0 = Math.floor(Math.log10(Math.min(...xs)) - 0.3), x1 = Math.ceil(Math.log10(Math.max(...xs)) + 0.4);
  const y0 = Math.floor(Math.log10(Math.min(...ys)) - 0.2), y1 = Math.ceil(Math.log10(Math.max(...ys)) + 0.1);
  const X = (v) => L + (Math.log10(v) - x0) / (x1 - x0) * (W - L - 10);
  const Y = (v) => H - B - (Math.log10(v) - y0) / (y1 - y0) * (H - B - 22);
  const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Roofline" });
  const text = (x, y, s, anchor = "start") => svg.append(el("text", { x, y, "text-anchor": anchor }, s));
  const line = (xa, ya, xb, yb, kind) => svg.append(el("line", { x1: xa, y1: ya, x2: xb, y2: yb, class: kind }));
  for (let e = x0; e <= x1; e++) { line(X(10 ** e), 22, X(10 ** e), H - B, "grid"); text(X(10 ** e), H - B + 14, short(10 ** e), e === x1 ? "end" : "middle"); }
  for (let e = y0; e <= y1; e++) { line(L, Y(10 ** e), W - 10, Y(10 ** e), "grid"); text(L - 5, Y(10 ** e) + 4, short(10 ** e), "end"); }
  text((L + W) / 2, H - 4, "operations per byte of HBM traffic", "middle");
  text(2, 10, "10\u00b9\u00b2 operations per second");
  for (const [name, top] of roofs) {
    const knee = Math.max(top / band, 10 ** x0);
    line(X(knee), Y(top), W - 10, Y(top), "roof");
    text(W - 12, Y(top) - 4, `${name} ${short(top)}`, "end");
  }
  const high = Math.max(...roofs.map(([, y]) => y)), low = Math.max(10 ** x0, 10 ** y0 / band);
  line(X(low), Y(low * band), X(high / band), Y(high), "roof");
  const notes = [];
  for (const p of points) {
    const compute = p.what === "elementwise" ? head.elementwise_tflops : high;
    const roof = Math.min(p.x * band, compute);
    line(X(p.x), Y(roof), X(p.x), Y(p.y), "guide");
    svg.append(el("circle", { cx: X(p.x), cy: Y(p.y), r: 5, class: "point" }));
    text(X(p.x) + 8, Y(p.y) + 13, p.text);
    notes.push(`${p.text}: ${short(p.x)} operations per byte, ${short(p.y)} of at most ${short(roof)} \u00d7 10\u00b9\u00b2/s ` +
               `(${percent(p.y / roof)}), where ${p.x * band < compute ? "memory bandwidth" : "the engine"} is the limit`);
  }
  return [svg, ...notes.map((n) => el("p", {}, n)),
          el("p", { class: "dim" }, `Bandwidth roof: ${(band * 1000).toFixed(0)} GB/s. One core's share of ${head.target}'s HBM is ${head.hbm_gbps.toFixed(0)} GB/s` +
            (band * 1000 > head.hbm_gbps ? "; a core alone may take more, up to what its DMA engines move." : "."))];
}

const short = (v) => v >= 1e4 || v < 1e-3 ? v.toExponential(0) : `${Number(v.toPrecision(3))}`;
