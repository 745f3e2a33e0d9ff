// What a profile adds up to: header, speed of light, regions, tensors; and what each row means.
"use strict";

const LETTERS = "ABCDEFGH";

// -- header --------------------------------------------------------------------------------------

/** Give each profile a name that tells it from the others: its own, its case, its arguments, a number. */
function nameThem(profiles) {
  const ways = [(p) => p.head.label || p.head.kernel, (p) => `${p.head.label || p.head.kernel} ${p.head.case || ""}`.trim(),
    (p) => `${p.head.kernel} ${shapesOf(p)}`.trim(), (p, k) => `${p.head.kernel} ${k + 1}`];
  const way = ways.find((w) => new Set(profiles.map(w)).size === profiles.length) ?? ways.at(-1);
  profiles.forEach((p, k) => { p.name_ = way(p, k); });
}

/** What the page is called: the profiles' names; one name for all that differ in arguments alone. */
function titleOf(profiles) {
  const kernels = new Set(profiles.map((p) => p.head.label || p.head.kernel));
  if (profiles.length === 1) return profiles[0].name_;
  if (kernels.size === 1) return `${[...kernels][0]}: ${profiles.map((_, k) => LETTERS[k]).join(", ")}`;
  return profiles.map((p, k) => `${p.name_} (${LETTERS[k]})`).join(profiles.length > 2 ? ", " : " and ");
}

const shapesOf = (p) => (p.head.arguments ?? []).filter((a) => a.shape).map((a) => `${a.shape.join("\u00d7")} ${a.dtype}`).join(", ");

/** What ran: case, arguments, dialect, release, date; a line for each profile. */
function factsOf({ head }) {
  const given = (head.arguments ?? []).map((a) => a.shape ? `${a.name} ${a.shape.join("\u00d7")} ${a.dtype}` : `${a.name}=${a.value}`);
  const kind = { beta1: "neuronxcc.nki", nki: `import nki, release ${head.release}` }[head.dialect];
  return [head.case && `case ${head.case}`, given.join(", "), kind, head.target, head.date].filter(Boolean).join(" \u00b7 ");
}

function drawFacts(host, profiles) {
  const shown = profiles.filter((p) => !isMeasured(p));
  host.replaceChildren(...shown.map((p) => el("span", {}, (profiles.length > 1 ? `${LETTERS[profiles.indexOf(p)]}: ` : "") + factsOf(p))));
  const { head } = profiles[0];
  document.title = [titleOf(profiles), head.case, head.target, document.title.split(" - ").at(-1)].filter(Boolean).join(" - ");
}

// -- speed of light ------------------------------------------------------------------------------

/** How busy each engine is in the latency, and how far the kernel is from the floor of its job. */
function drawLight(host, profile) {
  const { floor, latency_us: latency, engine_busy: busy } = profile.head;
  if (!floor) { host.replaceChildren(); return; }
  const bar = (label, us, kind, title) => el("div", { class: "bar", title },
    el("span", { class: "dim" }, label), el("span", { class: "track" }, el("span", { class: `fill ${kind}`, css: { width: `${Math.min(100, 100 * us / latency)}%` } })),
    el("span", { class: "num" }, time(us)), el("span", { class: "num dim" }, percent(us / latency)));
  const bars = ENGINES.map((name, e) => [ENGINE_NAMES[e], (busy[name] ?? 0) * latency, name])
    .filter(([, us]) => us > 0.002 * latency).sort((a, b) => b[1] - a[1])
    .map(([label, us, name]) => bar(label, us, name === floor.busiest ? "most" : "", `${label} is at work for ${time(us)} of ${time(latency)}`));
  const parts = [`launch ${time(floor.launch_us)}`, `bytes ${time(floor.bytes_us)}`, ...(floor.tensor_us ? [`products ${time(floor.tensor_us)}`] : [])];
  host.replaceChildren(el("h2", {}, "Speed of light ", el("small", {}, `${(latency / floor.floor_us).toFixed(2)} times the floor; ` +
      `${time(Math.max(0, latency - floor.work_us))} are waits, in which not even the busiest engine works`)),
    bar("floor of the job", floor.floor_us, "floor", "No kernel that reads these inputs, writes these outputs and makes these products is faster: " +
      `${parts.join(", ")}; every byte moves once, products run at the peak of their dtype, other arithmetic is free.`),
    ...(floor.unknown_bytes ? [el("p", { class: "dim" }, `The floor leaves out ${bytes(floor.unknown_bytes)} that run-time indices choose, ` +
      `since this run has no values; with all of them it is ${time(floor.with_unknown_us)}.`)] : []),
    ...bars);
}

// -- regions -------------------------------------------------------------------------------------

const REGION_ROWS = 60;

/** Time by line (on the critical path) and by loop. */
function regionsPanel(profile, app) {
  const { regions, critical_path: path } = profile.head;
  if (!regions) return [el("p", {}, "A measured profile has no regions.")];
  const busy = (row) => Object.entries(row.busy_us).sort((a, b) => b[1] - a[1]).slice(0, 3)
    .map(([name, us]) => `${ENGINE_NAMES[ENGINES.indexOf(name)]} ${time(us)}`).join(", ");
  const go = (row) => () => { if (row.line >= 0) app.showPlace(profile.placeOf[row.line]); };
  const lines = path.by_line.slice(0, REGION_ROWS).map((row) => goRow(go(row), td(row.where, "mono nobreak"), td(row.instruction),
    num(time(row.us)), num(percent(row.share)), td(row.why_text)));
  const loops = regions.loops.slice(0, REGION_ROWS).map((row) => goRow(go(row), td(`${"\u2003".repeat(row.depth)}${row.where || row.kind}`, "mono nobreak"),
    td(row.kind), num(`${row.runs} \u00d7 ${Math.round(row.iterations / row.runs)}`), num(time(row.span_us)), num(time(row.critical_us)), td(busy(row))));
  const work = regions.lines.slice(0, REGION_ROWS).map((row) => goRow(go(row), td(row.where, "mono nobreak"), num(`${row.instructions}`),
    num(time(row.critical_us)), td(busy(row)), num(row.moved_bytes ? bytes(row.moved_bytes) : "")));
  const out = [el("p", {}, el("b", {}, "On the critical path: "), "making anything else faster does not help."),
    rowsTable([["line"], ["instruction"], ["time", "num"], ["share", "num"], ["most often it"]], lines)];
  if (loops.length) out.push(el("p", {}, el("b", {}, "Loops: "), "runs \u00d7 iterations, from begin to end, on the critical path, and engines at work."),
    rowsTable([["loop"], ["kind"], ["runs", "num"], ["span", "num"], ["critical", "num"], ["at work"]], loops));
  out.push(el("p", {}, el("b", {}, "Work of each line")),
    rowsTable([["line"], ["count", "num"], ["critical", "num"], ["at work"], ["moved", "num"]], work));
  return out;
}

// -- tensors -------------------------------------------------------------------------------------

/** Bytes of each tensor in HBM, and how often they move. */
function tensorsPanel(profile, app) {
  const { tensors } = profile.head;
  if (!tensors) return [el("p", {}, "A measured profile does not say which tensors its transfers move.")];
  if (!tensors.length) return [el("p", {}, "Nothing moves to or from HBM.")];
  const rows = tensors.map((t) => goRow(() => { if (t.line >= 0) app.showPlace(profile.placeOf[t.line]); },
    td(t.name, "mono"), td(t.argument ? "argument" : t.where, t.argument ? "dim" : "mono"), td(t.dtype), num(bytes(t.bytes)),
    num(t.read_bytes ? bytes(t.read_bytes) : "\u2013"), num(t.written_bytes ? bytes(t.written_bytes) : "\u2013"),
    el("td", { class: `num ${t.repeat > 1.005 ? "bad" : ""}` }, t.repeat ? `${t.repeat.toFixed(t.repeat < 9.95 ? 2 : 0)}\u00d7` : t.read_bytes ? "?" : "\u2013")));
  return [rowsTable([["tensor"], ["made on"], ["dtype"], ["size", "num"], ["read", "num"], ["written", "num"], ["repeat", "num"]], rows),
    el("p", { class: "dim" }, "Repeat: how often each byte that is read is read. 1.00\u00d7 is the least; above it, the same " +
      "bytes come from HBM again. ?: run-time indices choose what is read.")];
}

// -- what the rows mean --------------------------------------------------------------------------

const ROWS = [
  ["Tensor", "Matrix products and transposes: a systolic array of 128 \u00d7 128 processing elements. Reads SBUF, writes PSUM."],
  ["Vector", "Arithmetic on tiles, an element a cycle in each of 128 partitions; sums along a partition; copies out of PSUM."],
  ["Scalar", "Functions (exp, gelu ...) and scale-and-add on tiles, an element a cycle in each partition; copies out of PSUM."],
  ["GpSimd", "Eight general processors for what the others cannot do: iota, sorting, integers. It also triggers stores (thin blocks)."],
  ["Sync", "Computes nothing: it triggers loads. A block here is a trigger; the bytes move in the rows below."],
  ["DMA transfers", "A block is one load, store or copy, from its first byte to its completion. Those that overlap are drawn below each other."],
  ["DMA engine", "The 16 engines that move bytes. Each transfer is cut into parts for them; what is light has gaps."],
  ["DMA throughput", "Bytes that all DMA engines move, in each pixel."],
  ["Pending DMAs", "Transfers that are triggered and not complete."],
  ["SBUF in use", "Bytes of a partition of SBUF that hold a tile that is still needed."],
  ["PSUM in use", "Banks of PSUM that hold a result that is still needed: there are eight."],
];

/** The help for the row of a timeline at height y: its name and what it shows; null between rows. */
function rowHelp(timeline, y) {
  const all = [...timeline.lanes, timeline.throughput, ...timeline.curves];
  const row = all.find((r) => y >= r.y && y <= r.y + r.height);
  if (!row) return null;
  const name = row.segments ? "DMA engine" : row.label || row.title || "DMA transfers";
  const help = ROWS.find(([label]) => name.startsWith(label));
  return help ? [row.segments ? row.title : name, help[1]] : null;
}

function helpPanel() {
  return [rowsTable([["row"], ["what it shows"]], [["launch", "Hatched: what starting any kernel takes. With it, the end of the timeline is the latency in the header."], ...ROWS]
    .map(([name, text]) => el("tr", {}, td(name, "nobreak"), td(text)))),
    el("p", { class: "dim" }, "Point at a row's name to see this there. Click a block: its operands, its line, and why it did not run earlier.")];
}
