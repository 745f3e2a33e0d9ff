// What a tile holds after an instruction: numbers, a histogram, a small picture.
"use strict";

/** The place of instruction i among those whose values were kept, -1 if it is not. */
function valuesAt(profile, i) {
  profile.placeOfValues ??= new Map(Array.from(profile.col.val_instr ?? [], (instr, k) => [instr, k]));
  return profile.placeOfValues.get(i) ?? -1;
}

/** Where the first NaN and the first infinity were written. */
function firstBad({ head }) {
  return (head.first_bad ?? []).map((bad) => el("p", {}, el("b", { class: "bad" }, `First ${bad.what}: `),
    el("button", { onclick: () => { nkisim.tab = "Values"; nkisim.select(bad.instr); nkisim.zoomTo(bad.instr); } }, `instruction ${bad.instr}, ${bad.name}`),
    ` ${bad.place}, in ${bad.elements.toLocaleString("en")} of ${bad.of.toLocaleString("en")} elements`));
}

function valuesPanel(profile, i) {
  const { col, head } = profile, dim = (text) => el("p", { class: "dim" }, text);
  if (!col.val_instr) {
    return [dim("Values were not kept. python -m nkisim profile ... --html keeps them, and so does a tester's --profile; " +
                "in Python, nkisim.profile(..., tile_values=True). There are none without arithmetic (--no-compute).")];
  }
  if (i < 0) return [...firstBad(profile), dim("Click an instruction: what it wrote is shown here. The arrow keys go along its engine.")];
  const k = valuesAt(profile, i);
  if (k < 0) return [dim(`No values of instruction ${i}: only the first ${col.val_instr.length.toLocaleString("en")} of the kernel itself have them.`)];
  const target = profile.operands(i)[0], { bins, rows: most, columns: wide } = head.values;
  const flag = (n) => el("td", { class: n ? "num bad" : "num" }, n.toLocaleString("en"));
  const row = (name, cell) => el("tr", {}, td(name, "dim"), cell);
  const table = el("table", {}, el("tbody", {},
    row("written", td(target.text)), row("elements", num(col.val_count[k].toLocaleString("en"))),
    row("min", num(value(col.val_min[k]))), row("max", num(value(col.val_max[k]))), row("mean", num(value(col.val_mean[k]))),
    row("zeros", num(col.val_zero[k].toLocaleString("en"))), row("NaN", flag(col.val_nan[k])), row("infinite", flag(col.val_inf[k]))));
  const picture = col.val_picture.subarray(k * most * wide, (k + 1) * most * wide);
  return [el("p", {}, swatch(PALETTE[profile.colorOfKind[col.kind[i]]]), el("b", {}, profile.name(i)),
             el("span", { class: "dim" }, `  instruction ${i}, ${profile.place(col.line[i])} ${profile.loops(i)}`)), table,
          histogram(col.val_histogram.subarray(k * bins, (k + 1) * bins), col.val_min[k], col.val_max[k]),
          heatmap(picture, col.val_rows[k], col.val_columns[k], wide),
          dim("Partitions from top to bottom, elements of a partition from left to right; means of parts. " +
              "Light: low, dark: high, red: NaN or infinite.")];
}

const value = (x) => Number.isInteger(x) && Math.abs(x) < 1e7 ? `${x}` : Number(x).toPrecision(5);

function histogram(counts, low, high) {
  const W = 420, H = 90, top = Math.max(...counts, 1), step = W / counts.length;
  const svg = el("svg", { viewBox: `0 0 ${W} ${H + 18}`, role: "img", class: "histogram",
                          "aria-label": `Histogram from ${value(low)} to ${value(high)}` });
  counts.forEach((n, b) => {
    const height = n ? Math.max(1, n / top * H) : 0;
    svg.append(el("rect", { x: b * step + 0.5, y: H - height, width: step - 1, height, class: "bar" }));
  });
  svg.append(el("text", { x: 0, y: H + 13 }, value(low)), el("text", { x: W, y: H + 13, "text-anchor": "end" }, value(high)));
  return svg;
}

function heatmap(cells, rows, columns, stride) {
  const W = 420, H = Math.max(60, Math.min(160, rows * 10)), w = W / columns, h = H / rows;
  const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "heat", "aria-label": "Picture of the tile" });
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const v = cells[r * stride + c];
      svg.append(el("rect", { x: c * w, y: r * h, width: w, height: h, class: v === 255 ? "nan" : "cell",
                              "fill-opacity": v === 255 ? 1 : (0.04 + 0.96 * v / 254).toFixed(3) }));
    }
  }
  return svg;
}
