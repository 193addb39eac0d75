// The boxes above the tables narrow the page to some of its runs. An element that says which runs it is about is
// shown while one of them is; so is a line of a figure. Within one facet any ticked value will do.
{
  const bar = document.getElementById("filters");
  if (bar) {
    const boxes = [...bar.querySelectorAll("input")];
    const status = bar.querySelector("[role=status]");
    const reset = bar.querySelector("button");
    const elements = [...document.querySelectorAll("[data-runs]")];
    const figures = [...document.querySelectorAll(".by-series")];
    const ofAll = [...document.querySelectorAll(".of-all")];
    const runs = [...document.querySelectorAll("tr[data-facets]")].map(({ dataset }) => ({
      number: dataset.runs,
      series: dataset.seriesOfRun,
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
      const series = new Set(shown.map((run) => run.series));
      const narrowed = shown.length < runs.length;
      for (const element of elements) {
        element.hidden = !element.dataset.runs.split(" ").some((number) => numbers.has(number));
      }
      for (const figure of figures) {
        const lines = [...figure.querySelectorAll("[data-series]")]; // and their names in the legend
        for (const line of lines) line.toggleAttribute("hidden", !series.has(line.dataset.series));
        figure.hidden = lines.every((line) => line.hasAttribute("hidden"));
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
