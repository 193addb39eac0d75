// Tables marked .sortable sort by a press on a heading: up, down, and back to the order they came in.
{
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
  const words = new Intl.Collator("en", { numeric: true });

  // Rows that go on about the one above travel with it.
  const inGroups = (rows) => {
    const groups = [];
    for (const row of rows) {
      if (row.hasAttribute("data-follows")) groups.at(-1).push(row);
      else groups.push([row]);
    }
    return groups;
  };

  // Null where it is not known.
  const valueOf = (group, column, numeric) => {
    const raw = group[0].cells[column]?.dataset.value;
    if (raw === undefined || !numeric) return raw ?? null;
    const number = Number(raw);
    return Number.isFinite(number) ? number : null;
  };

  // Sorting is stable, so that equal ones keep the order they came in, up and down; what is not known comes last.
  const sorted = (groups, column, numeric, direction) => {
    const sign = direction === "descending" ? -1 : 1;
    const compare = numeric ? (a, b) => a - b : words.compare;
    return groups
      .map((group) => ({ group, value: valueOf(group, column, numeric) }))
      .sort((a, b) => {
        if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
        return sign * compare(a.value, b.value);
      })
      .map(({ group }) => group);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const original = inGroups(body.rows);
    if (original.length < 2) continue;
    const headers = [...table.tHead.rows[0].cells];
    const press = (header, column) => {
      const direction = NEXT[header.getAttribute("aria-sort") ?? "none"];
      for (const other of headers) other.removeAttribute("aria-sort");
      if (direction !== "none") header.setAttribute("aria-sort", direction);
      const numeric = header.dataset.sort === "number";
      const groups = direction === "none" ? original : sorted(original, column, numeric, direction);
      body.append(...groups.flat());
    };
    headers.forEach((header, column) => {
      if (!header.dataset.sort) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => press(header, column));
      header.append(button);
    });
    table.classList.add("sorting");
  }
}
