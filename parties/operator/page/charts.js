// Columns, one for each round, drawn as SVG to the width there is. Rule: whatever a chart shows stands in the table below.

const SPACE = "http://www.w3.org/2000/svg";
const MARGIN = { top: 8, right: 4, bottom: 20, left: 38 };
const NARROWEST = 7;
const WIDEST = 34;

export class Columns {
  // series: [{ name, look, of(round) }], stacked from below; reading(round): the round's figures in words; least: the
  // smallest step of the scale, 1 where things are counted.
  constructor(figure, series, reading, least = 0) {
    this.plot = figure.querySelector(".plot");
    this.words = figure.querySelector(".reading");
    this.title = figure.querySelector("h2").textContent;
    this.series = series;
    this.reading = reading;
    this.least = least;
    this.rounds = [];
    this.legend = figure.querySelector(".legend");
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  show(rounds) {
    this.rounds = rounds;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    const height = this.plot.clientHeight;
    if (!this.rounds.length || width < 60) return;
    this.legend.replaceChildren(...legend(this.series.filter(({ of }) => this.rounds.some((round) => of(round) > 0)), this.rounds.some(({ ended }) => ended !== "done")));
    const room = width - MARGIN.left - MARGIN.right;
    const shown = this.rounds.slice(-Math.floor(room / NARROWEST));
    const pitch = Math.min(room / shown.length, WIDEST);
    const ticks = scale(Math.max(...shown.map((round) => total(this.series, round))), this.least);
    const top = ticks[ticks.length - 1];
    const y = (value) => height - MARGIN.bottom - (value / top) * (height - MARGIN.top - MARGIN.bottom);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.label(shown) });
    for (const tick of ticks) svg.append(...gridline(tick, y(tick), width));
    const every = Math.ceil(44 / pitch);
    shown.forEach((round, index) => {
      const x = MARGIN.left + index * pitch;
      svg.append(this.column(round, x, pitch, y, height));
      if ((shown.length - 1 - index) % every === 0) svg.append(text(round.number, x + pitch / 2, height - 5, "middle"));
    });
    svg.addEventListener("pointerleave", () => this.read(this.rounds[this.rounds.length - 1]));
    this.plot.replaceChildren(svg);
    this.read(this.rounds[this.rounds.length - 1]);
  }

  column(round, x, pitch, y, height) {
    const group = element("g", { class: "column", "data-round": round.number });
    group.append(element("rect", { class: "whole", x, y: MARGIN.top, width: pitch, height: height - MARGIN.top - MARGIN.bottom }));
    const gap = pitch > 12 ? 4 : 1.5;
    let base = 0;
    for (const { look, of } of this.series) {
      const value = of(round);
      if (value > 0) {
        const size = Math.max(y(base) - y(base + value), 1);
        group.append(element("rect", { class: look, x: x + gap / 2, y: y(base) - size, width: pitch - gap, height: size, rx: pitch > 12 ? 2 : 0 }));
      }
      base += value;
    }
    if (round.ended !== "done") group.append(text("×", x + pitch / 2, y(base) - 3, "middle", "cross"));
    group.addEventListener("pointerenter", () => this.read(round));
    return group;
  }

  read(round) {
    this.words.textContent = `Round ${round.number}: ${this.reading(round)}`;
  }

  label(shown) {
    const last = shown[shown.length - 1];
    return `${this.title}, rounds ${shown[0].number} to ${last.number}; the last one: ${this.reading(last)}. The table of past rounds has all figures.`;
  }
}

function legend(series, crossed) {
  const entries = series.map(({ name, look }) => [name, look]);
  return [...entries, ...(crossed ? [["not done", "cross"]] : [])].map(([name, look]) =>
    Object.assign(document.createElement("li"), { className: look, textContent: name }));
}

function total(series, round) {
  return series.reduce((sum, { of }) => sum + of(round), 0);
}

// Zero and up to five round steps above it, the last one at or above the most.
function scale(most, least) {
  const rough = Math.max((most || 1) / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  return Array.from({ length: Math.ceil((most || 1) / size - 1e-9) + 1 }, (_, index) => index * size);
}

function gridline(tick, y, width) {
  const line = element("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y });
  const words = Number(tick.toPrecision(6)).toLocaleString("en", { notation: tick >= 10000 ? "compact" : "standard", maximumFractionDigits: 3 });
  return [line, text(words, MARGIN.left - 6, y + 4, "end")];
}

function text(words, x, y, anchor, look = "") {
  const label = element("text", { x, y, "text-anchor": anchor, class: look });
  label.textContent = words;
  return label;
}

function element(name, attributes) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
