// The boxes above the tables narrow the page to some of its runs. An element that says which runs it is about is
// shown while one of them is; so is a line of a figure with its name in the legend. Within one facet any ticked value
// will do. A section that has nothing left to show goes with what it showed.
{
  const bar = document.getElementById("filters");
  if (bar) {
    const boxes = [...bar.querySelectorAll("input")];
    const status = bar.querySelector("[role=status]");
    const reset = bar.querySelector("button");
    const elements = [...document.querySelectorAll("[data-runs]")];
    const figures = [...document.querySelectorAll(".by-series")];
    const sections = [...document.querySelectorAll("main > section")].map((section) => ({
      section,
      parts: [...section.querySelectorAll("figure, tbody tr, details")],
    }));
    const ofAll = [...document.querySelectorAll(".of-all")];
    const runs = [...document.querySelectorAll("tr[data-facets]")].map(({ dataset }) => ({
      number: dataset.runs,
      values: dataset.facets.split(" "),
    }));

    const ticked = () => {
      const chosen = new Map();
      for (const { checked, value, dataset } of boxes) {
        if (checked) chosen.set(dataset.facet, (chosen.get(dataset.facet) ?? new Set()).add(value));
      }
      return [...chosen];
    };

    const apply = () => {
      const chosen = ticked();
      const shown = runs.filter((run) => chosen.every(([facet, values]) => values.has(run.values[facet])));
      const numbers = new Set(shown.map((run) => run.number));
      const narrowed = shown.length < runs.length;
      for (const element of elements) {
        element.hidden = !element.dataset.runs.split(" ").some((number) => numbers.has(number));
      }
      for (const figure of figures) {
        const named = [...figure.querySelectorAll("li[data-series]")].filter((name) => !name.hidden);
        const series = new Set(named.map((name) => name.dataset.series));
        for (const line of figure.querySelectorAll("svg [data-series]")) {
          line.toggleAttribute("hidden", !series.has(line.dataset.series));
        }
        figure.hidden = series.size === 0;
      }
      for (const { section, parts } of sections) {
        if (!section.dataset.runs) section.hidden = false; // the others were shown or hidden above
        if (parts.length && parts.every((part) => part.hidden)) section.hidden = true;
      }
      for (const remark of ofAll) remark.hidden = !narrowed;
      reset.hidden = chosen.length === 0;
      status.textContent = `${shown.length} of ${runs.length} runs shown.`;
    };

    for (const box of boxes) box.addEventListener("change", apply);
    reset.addEventListener("click", () => {
      for (const box of boxes) box.checked = false;
      apply();
      boxes[0].focus(); // the button is about to go, and the focus would be lost with it
    });
    bar.hidden = false;
    apply();
  }
}
