// Search over instructions: which ones a line of words finds.
"use strict";

/**
 * The instructions that fit all words of a query, in order of time.
 *
 * A word is looked for in name, engine, place, source line and operands of an instruction; `line:54` is a line,
 * `#12` the instruction of that number, `>5us` and `<300ns` how long it takes.
 */
function find(profile, query) {
  const { col, count } = profile, tests = query.trim().toLowerCase().split(/\s+/).map((word) => testOf(profile, word));
  const out = [];
  for (let i = 0; i < count; i++) if (tests.every((test) => test(i))) out.push(i);
  return out.sort((a, b) => profile.start[a] - profile.start[b] || a - b);
}

const UNITS = { ns: 1e-3, us: 1, "\u00b5s": 1, ms: 1e3 };

function testOf(profile, word) {
  const { col, head } = profile;
  const number = word.match(/^#(\d+)$/), line = word.match(/^line:(\d+)$/), span = word.match(/^([<>])(\d+(?:\.\d+)?)(ns|us|\u00b5s|ms)?$/);
  if (number) return (i) => i === Number(number[1]);
  if (line) return (i) => col.line[i] >= 0 && head.lines[col.line[i]][1] === Number(line[1]);
  if (span) {
    const limit = Number(span[2]) * UNITS[span[3] ?? "us"], sign = span[1] === ">" ? 1 : -1;
    return (i) => sign * (profile.spent[i] - limit) > 0;
  }
  const kinds = head.kinds.map((kind, k) => [profile.labels[k],
    ...kind.operands.map(([memory, dtype, shape]) => `${memory} ${dtype} [${shape.join(",")}]`)].join(" ").toLowerCase().includes(word));
  const lines = head.lines.map((_, k) => `${profile.place(k)} ${head.lines[k][2]} ${profile.sourceText(k)}`.toLowerCase().includes(word));
  const names = head.names.map((name) => name !== "?" && name.toLowerCase() === word);
  const any = names.some(Boolean);
  return (i) => {
    if (kinds[col.kind[i]] || ENGINE_NAMES[col.engine[i]].toLowerCase().includes(word) || (col.line[i] >= 0 && lines[col.line[i]])) return true;
    if (!any) return false;
    const at = profile.operandAt[i], n = head.kinds[col.kind[i]].operands.length;
    for (let k = 0; k < n; k++) if (names[col.storage_name[col.operand[at + k]]]) return true;
    return false;
  };
}

const FOUND_ROWS = 300;

function foundPanel(profile, app) {
  const { found } = app;
  if (!found.length) return [el("p", {}, "Nothing fits all of these words.")];
  const rows = found.slice(0, FOUND_ROWS).map((i) => goRow(() => app.select(i),
    num(`${i}`), el("td", {}, swatch(PALETTE[profile.colorOfKind[profile.col.kind[i]]]), profile.name(i)),
    td(profile.place(profile.col.line[i]), "mono"), num(time(profile.start[i])), num(time(profile.spent[i]))));
  const out = [rowsTable([["#", "num"], ["instruction"], ["line"], ["begins", "num"], ["takes", "num"]], rows)];
  if (found.length > FOUND_ROWS) out.push(el("p", { class: "dim" }, `The first ${FOUND_ROWS} of ${found.length.toLocaleString("en")}.`));
  return out;
}
