// A measured profile above the predicted one: cards, the tab that compares them, linked selection.
"use strict";

const isMeasured = (profile) => Boolean(profile?.head.measured);

/** The sentence that says whose numbers a measured profile's are. */
function measuredBanner({ head }) {
  return `A: measured on a NeuronCore (${head.source})` + (head.target === "?" ? "" : `, ${head.target}`);
}

function measuredCards(host, measured, predicted) {
  const a = measured.head.profile_total_us, b = predicted.head.profile_total_us;
  const [mine, theirs] = measured.head.unmatched;
  const card = (value, label) => el("div", { class: "card" }, el("b", {}, value), el("span", {}, label));
  host.replaceChildren(
    card(time(a), "total_time, measured (A)"), card(time(b), "total_time, predicted (B)"),
    card(`${b >= a ? "+" : "\u2212"}${(Math.abs(b / a - 1) * 100).toFixed(1)} %`, "error of the prediction"),
    card(`${measured.head.matched}`, "instructions matched"),
    card(`${mine} + ${theirs}`, "without a partner, in A + in B"));
}

/** Where did the model err, and where did the kernel wait? Click a row: both timelines show it. */
function measuredPanel(app) {
  const [measured] = app.profiles, us = (v) => num(time(v));
  const rows = measured.head.differences.map((row) => {
    const error = row.measured_us ? (row.predicted_us / row.measured_us - 1) * 100 : 0;
    return goRow(() => { app.focus(0); app.select(row.at); app.zoomTo(row.at); },
      td(row.place, "mono nobreak"), td(row.name, "nobreak"), num(`${row.count}`), us(row.measured_us), us(row.predicted_us),
      el("td", { class: `num ${Math.abs(error) > 25 ? "bad" : ""}` }, `${error >= 0 ? "+" : "\u2212"}${Math.abs(error).toFixed(0)} %`),
      us(row.measured_wait_us), us(row.predicted_wait_us));
  });
  return [rowsTable([["line"], ["instruction"], ["count", "num"], ["measured", "num"], ["predicted", "num"],
                     ["error", "num"], ["wait, A", "num"], ["wait, B", "num"]], rows),
          el("p", { class: "dim" }, "The largest difference first. A wait is how long the engine stood still " +
            "before the instruction. Instructions of the runtime and what the compiler split, joined or moved " +
            "have no partner and are not here.")];
}

/** Select the partner of what was selected in the other timeline. */
function selectPartner(app, i) {
  if (!isMeasured(app.profiles[0]) || app.profiles.length < 2) return;
  const { pair } = app.profiles[0].col, other = app.timelines[1 - app.at];
  const partner = i < 0 ? -1 : app.at === 0 ? pair[i] : pair.indexOf(i);
  other.select(partner);
}
