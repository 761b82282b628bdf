// Past rounds: two charts, and a table whose rows unfold to who was counted. Rules: a column of times has one unit; on a
// phone each row is a small card, and nothing scrolls sideways.

import { Columns } from "./charts.js";
import { ask, at, make } from "./dom.js";
import { ENDED, REASONS, protocol, reasons } from "./labels.js";
import { bar, words } from "./round.js";
import { route } from "./tasks.js";
import { moment, number, seconds, unit, zone } from "./units.js";

const SHOWN = matchMedia("(max-width: 40rem)").matches ? 5 : 10;

const notCounted = (round) => Object.values(round.not_counted).reduce((sum, many) => sum + many, 0);
const time = (key) => (round) => round.times[key];
const clientsChart = new Columns(at("clients-chart"), [
  { name: "counted", look: "first", of: (round) => round.counted },
  { name: "not counted", look: "third", of: notCounted },
], (round) => round.ended === "done" ? `${round.counted} counted, ${notCounted(round)} not` : ENDED[round.ended], 1);
const secondsChart = new Columns(at("seconds-chart"), [
  { name: "collecting", look: "collecting", of: time("collecting") },
  { name: "computing", look: "computing", of: time("computing") },
  { name: "waiting", look: "waiting", of: time("waiting") },
  { name: "interrupted", look: "interrupted", of: time("interrupted") },
], (round) => `${seconds(round.seconds)}, of it evaluation ${seconds(round.evaluating)}`);

const unfolded = new Map();
let shown = SHOWN;
let rounds = [];

export async function fetchRounds() {
  ({ rounds } = await ask(route("rounds.json")));
  draw();
}

export function watchRounds() {
  at("past-more").addEventListener("click", () => {
    shown += 4 * SHOWN;
    draw();
  });
}

function draw() {
  const some = rounds.length > 0;
  at("charts").hidden = at("past-table").hidden = at("measured").hidden = !some;
  at("past-none").hidden = some;
  at("past-more").hidden = rounds.length <= shown;
  if (!some) return;
  clientsChart.show(rounds);
  secondsChart.show(rounds);
  const latest = rounds.slice(-shown).reverse();
  const columns = figures(latest);
  at("past-head").replaceChildren(...["Round", "Ended", "Counted", "Not counted", "Time", ...columns.map(({ title }) => title), `Settled (${zone()})`]
    .map((title) => { const head = make("th", "", title); head.scope = "col"; return head; }));
  at("past").replaceChildren(...latest.flatMap((round) => rows(round, columns)));
}

// The columns of times, each with the unit that fits all that is shown of it.
function figures(latest) {
  const of = {
    Total: (round) => round.seconds,
    Collecting: time("collecting"),
    Computing: time("computing"),
    Waiting: time("waiting"),
    Evaluation: (round) => round.evaluating,
  };
  return Object.entries(of).map(([title, value]) => {
    const { name, of: format } = unit(latest.map(value));
    return { title: `${title} (${name})`, text: (round) => format(value(round)) };
  });
}

function cell(title, look, ...inside) {
  const made = make("td", look, ...inside);
  made.dataset.title = title;
  return made;
}

function rows(round, columns) {
  const button = make("button", "unfold", String(round.number));
  button.type = "button";
  button.setAttribute("aria-expanded", unfolded.has(round.number));
  button.setAttribute("aria-label", `Round ${round.number}: who was counted`);
  const kind = round.protocol === "ssa" ? [] : [make("span", "tag", protocol(round.protocol).name)];
  const ended = cell("Ended", round.explanation ? "ended poor-text" : "ended", round.explanation ? `${ENDED[round.ended]}: ${round.explanation}` : "done");
  const others = cell("Not counted", "", number(notCounted(round)));
  others.title = reasons(round.not_counted);
  const row = make("tr", "", cell("Round", "number", button, ...kind), ended, cell("Counted", "", number(round.counted)), others,
    cell("Time", "wide", bar(round, words("waiting", "the other server").replace("waiting for ", ""))),
    ...columns.map(({ title, text }) => cell(title, "", text(round))), cell(`Settled (${zone()})`, "settled", moment(round.settled_at, false)));
  button.addEventListener("click", () => unfold(round.number, button, row));
  return unfolded.has(round.number) ? [row, unfolded.get(round.number)] : [row];
}

async function unfold(round, button, row) {
  if (unfolded.has(round)) {
    unfolded.get(round).remove();
    unfolded.delete(round);
  } else {
    const inside = make("td", "unfolded", "…");
    inside.colSpan = 11;
    const more = make("tr", "", inside);
    unfolded.set(round, more);
    row.after(more);
    inside.replaceChildren(...names(await ask(route(`rounds/${round}.json`)).catch(() => ({ error: "the server does not have it, or does not answer" }))));
  }
  button.setAttribute("aria-expanded", unfolded.has(round));
}

function names(round) {
  if (round.error) return [make("p", "poor-text", round.error)];
  const others = Object.entries(round.excluded).map(([client, reason]) => make("p", "", `Not counted: ${client}, ${REASONS[reason] ?? reason}`));
  return [make("p", "", round.clients.length ? `Counted: ${round.clients.join(", ")}` : "Nobody was counted."), ...others];
}
