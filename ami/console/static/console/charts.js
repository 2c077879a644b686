// Draws a queue's charts from its series, with marks for pauses and new versions; they follow the theme and the width.
"use strict";
(() => {
  const place = document.getElementById("charts");
  if (!place) return;
  const AGAIN_MS = {"1h": 5000, "24h": 60000, "7d": 300000};
  const COLOURS = {
    waiting: "--c-blue", running: "--c-green", delayed: "--c-quiet",
    started: "--c-blue", ended: "--c-green", failed: "--c-red", p95_wait: "--c-blue", target: "--c-amber",
  };
  const NAMES = {p95_wait: "wait p95"};
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  // A custom property holds both themes; a computed colour holds the one that is shown.
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const number = new Intl.NumberFormat(undefined, {maximumFractionDigits: 2, notation: "compact"});
  const seconds = (value) => {
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 120) return `${number.format(value)} s`;
    return value < 7200 ? `${Math.round(value / 60)} min` : `${number.format(value / 3600)} h`;
  };
  const shown = (unit) => (value) => (value == null ? "–" : unit === "seconds" ? seconds(value) : number.format(value));
  let plots = [];
  let last = null;

  const marks = (plot, found) => {
    const {ctx, bbox} = plot;
    ctx.save();
    ctx.setLineDash([4, 4]);
    for (const mark of found) {
      const x = Math.round(plot.valToPos(mark.at, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(mark.kind === "version" ? "--c-quiet" : "--c-amber");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // The legend says the newest figures unless a moment is pointed at.
  const newest = (plot) => plot.setLegend({idx: plot.data[0].length - 1});

  const series = (name, unit) => ({
    label: NAMES[name] || name,
    stroke: colour(COLOURS[name] || "--c-blue"),
    width: 1.5,
    dash: name === "target" ? [6, 4] : undefined,
    points: {show: false},
    spanGaps: false,
    value: (_, value) => shown(unit)(value),
  });

  const options = (box, names, unit, data) => {
    const grid = {stroke: colour("--c-grid"), width: 1};
    const axis = {stroke: colour("--c-quiet"), grid, ticks: {show: false}, font: "11px system-ui", labelFont: "11px system-ui"};
    const format = new Intl.DateTimeFormat(undefined, data.span > 90000 ? {weekday: "short", day: "numeric"} : {timeStyle: "short"});
    const at = (value) => (value == null ? "–" : shownTime(new Date(value * 1000)));
    const times = {...axis, space: 70, size: 30, values: (_, values) => values.map((value) => format.format(new Date(value * 1000)))};
    return {
      width: box.clientWidth, height: 180, cursor: {sync: {key: "queue"}, points: {size: 6}},
      legend: {live: true},
      scales: {x: {time: true, range: [Date.now() / 1000 - data.span, Date.now() / 1000]}, y: {range: (_, low, high) => [0, Math.max(high * 1.1, unit === "seconds" ? 0.01 : 1)]}},
      series: [{label: "at", value: (_, value) => at(value)}, ...names.map((name) => series(name, unit))],
      axes: [times, {...axis, size: 56, values: (_, values) => values.map(shown(unit))}],
      hooks: {
        draw: [(plot) => marks(plot, data.marks)],
        ready: [newest],
        setCursor: [(plot) => plot.cursor.idx == null && newest(plot)],
      },
    };
  };

  const draw = (data) => {
    last = data;
    for (const plot of plots) plot.destroy();
    plots = [];
    const note = document.getElementById("charts-note");
    note.textContent = data.times.length ? "" : "No samples yet. They are taken every five seconds while a worker or this page runs.";
    for (const box of place.querySelectorAll(".chart")) {
      const {unit} = box.dataset;
      const names = box.dataset.columns.split(" ").filter((name) => data.columns[name]);
      const values = names.map((name) => data.columns[name]);
      if (names.includes("p95_wait") && data.target) {
        names.push("target");
        values.push(data.times.map(() => data.target));
      }
      box.replaceChildren();
      box.setAttribute("role", "img");
      const ends = names.map((name, index) => `${NAMES[name] || name} ${shown(unit)(values[index].at(-1))}`);
      box.setAttribute("aria-label", `${box.previousElementSibling.textContent}: now ${ends.join(", ") || "no figures"}`);
      if (data.times.length) plots.push(new uPlot(options(box, names, unit, data), [data.times, ...values], box));
    }
    list(data.marks);
  };

  const list = (found) => {
    document.getElementById("marks").replaceChildren(...found.map((mark) => {
      const item = document.createElement("li");
      item.className = `mark-${mark.kind}`;
      item.textContent = `${shownTime(new Date(mark.at * 1000))}: ${mark.text}`;
      return item;
    }));
  };

  const load = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(place.dataset.series, {headers: {Accept: "application/json"}});
      if (answer.ok) draw(await answer.json());
      else document.getElementById("charts-note").textContent = `The charts were not loaded (${answer.status}).`;
    } catch {
      document.getElementById("charts-note").textContent = "The charts were not loaded: no answer from the server.";
    }
  };

  const redraw = () => last && draw(last);
  new ResizeObserver(() => {
    for (const plot of plots) plot.setSize({width: plot.root.parentElement.clientWidth, height: 180});
  }).observe(place);
  new MutationObserver(redraw).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  load();
  setInterval(load, AGAIN_MS[place.dataset.span] || 60000);
})();
