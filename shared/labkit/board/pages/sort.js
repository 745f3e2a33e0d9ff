document.querySelectorAll("table[data-sortable]").forEach((table) => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const text = row.cells[column].textContent.trim();
        const number = Number(text.replace(/,/g, ""));
        return Number.isNaN(number) ? text : number;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        const order = x < y ? -1 : x > y ? 1 : 0;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
});
