// Columns sort when their headers are pressed; without scripts the tables stay in the order they came in.
for (const header of document.querySelectorAll("th[data-column]")) {
  const button = document.createElement("button");
  button.append(...header.childNodes);
  header.append(button);
  button.addEventListener("click", () => sort(header));
}

function sort(header) {
  const table = header.closest("table"), body = table.tBodies[0], column = Number(header.dataset.column);
  const value = (row) => row.children[column].dataset.value ?? row.children[column].textContent;
  const numeric = [...body.rows].every((row) => value(row) === "" || !Number.isNaN(Number(value(row))));
  const before = header.getAttribute("aria-sort");
  const down = before ? before === "ascending" : numeric;
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const order = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return (down ? -1 : 1) * (numeric ? a - b : a.localeCompare(b));
  };
  body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
}
