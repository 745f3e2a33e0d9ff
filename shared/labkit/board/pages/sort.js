const chosen = new Map();       // table -> [column, up], kept when a live board renews itself

function order(table, column, up) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replace(/,/g, ""));
    if (text === "-") return Infinity;          // a number that is not known comes last
    return Number.isNaN(number) ? text : number;
  };
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const sign = x < y ? -1 : x > y ? 1 : 0;
    return up ? sign : -sign;
  });
  table.tBodies[0].append(...rows);
}

function wire() {
  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    const name = table.dataset.sortable;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        chosen.set(name, [column, head.getAttribute("aria-sort") !== "ascending"]);
        order(table, ...chosen.get(name));
      });
    });
    if (chosen.has(name)) order(table, ...chosen.get(name));
  });
}

/* A live board asks for itself again: a page that loaded anew would lose the chosen order,
   the scroll position and the keyboard's focus. */
async function renew() {
  const said = document.querySelector("[role=status]");
  let text;
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    text = await answer.text();
  } catch {
    said.textContent = "The server does not answer; the board may be old. Trying again.";
    said.className = "bad";
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.querySelector("[role=status]");
  if (said.textContent !== fresh.textContent) said.textContent = fresh.textContent;
  said.className = fresh.className;
  const [old, board] = [document.querySelector("#board"), page.querySelector("#board")];
  const scrolled = new Map([...old.querySelectorAll("[data-sortable]")].map(
    (table) => [table.dataset.sortable, table.parentElement.scrollLeft]));
  const held = old.querySelector("button:focus");
  const name = held?.closest("table").dataset.sortable;
  const [x, y] = [scrollX, scrollY];            // the browser would follow a row, not the reader
  old.replaceWith(document.adoptNode(board));
  wire();
  board.querySelectorAll("[data-sortable]").forEach((table) => {
    table.parentElement.scrollLeft = scrolled.get(table.dataset.sortable) ?? 0;
    if (table.dataset.sortable === name) {
      [...table.querySelectorAll("button")].find((b) => b.textContent === held.textContent)?.focus();
    }
  });
  scrollTo(x, y);
}

wire();
if (document.querySelector("main[data-live]")) {
  setInterval(() => document.hidden || renew(), 1000 * document.querySelector("main").dataset.live);
  document.addEventListener("visibilitychange", () => document.hidden || renew());
}
