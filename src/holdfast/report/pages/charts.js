// Draws the page's charts, and draws them again when the system turns light or dark. Expressions
// are interpreted (ast), never compiled: the page's policy forbids eval.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const drawn = new Map();

  // A phone has room for one column of a legend.
  function themed(theme, width) {
    const config = data.themes[theme];
    return { ...config, legend: { ...config.legend, columns: width < 420 ? 1 : width < 700 ? 2 : 4 } };
  }

  async function draw(place) {
    const name = place.dataset.chart;
    const theme = dark.matches && !paper.matches ? "dark" : "light";
    const before = drawn.get(name);
    const result = await window.vegaEmbed(place, data.charts[name], {
      actions: false,
      ast: true,
      config: themed(theme, place.clientWidth),
      defaultStyle: false,
      mode: "vega-lite",
      renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: "page" },
    });
    drawn.set(name, result);
    if (before) before.finalize();
    place.dataset.drawn = theme;
  }

  const places = () => document.querySelectorAll("[data-chart]");
  const drawAll = () =>
    places().forEach((place) =>
      draw(place).catch((error) => {
        console.error(error);
        place.textContent = "This chart cannot be drawn here; its numbers are below.";
      }),
    );
  dark.addEventListener("change", drawAll);
  paper.addEventListener("change", drawAll);
  drawAll();
})();
