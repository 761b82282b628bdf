// Keeps the page as the server stands. Everything that comes from the server is put in as text, never as markup.

import { Columns } from "./charts.js";
import { STATES, STEPS, bytes, clock, count, reasons, REASONS, seconds, step, when } from "./labels.js";

const at = (id) => document.getElementById(id);
const say = (id, words) => { if (at(id).textContent !== words) at(id).textContent = words; };
const make = (tag, look, ...inside) => {
  const made = document.createElement(tag);
  if (look) made.className = look;
  made.append(...inside);
  return made;
};

const notCounted = (round) => Object.values(round.not_counted).reduce((sum, number) => sum + number, 0);
const clientsChart = new Columns(at("clients-chart"), [
  { name: "counted", look: "first", of: (round) => round.counted },
  { name: "not counted", look: "third", of: notCounted },
], (round) => round.aborted ? "aborted" : round.refused ? "sum refused" : `${round.counted} counted, ${notCounted(round)} not`, 1);
const secondsChart = new Columns(at("seconds-chart"), [
  { name: "evaluation", look: "second", of: (round) => Math.min(round.evaluating, round.seconds) },
  { name: "the rest, mostly waiting for clients", look: "rest", of: (round) => Math.max(round.seconds - round.evaluating, 0) },
], (round) => `${seconds(round.seconds)}, evaluation ${seconds(round.evaluating)}`);

let ahead = 0;
let closes = null;
let settled = -1;
let fetching = false;
const unfolded = new Map();

// ---- how the server stands

function show(status) {
  ahead = Date.now() / 1000 - status.time;
  document.title = title(status);
  say("server", status.server);
  say("task", status.task);
  mark(at("peer"), status.peer.connected ? "good" : "poor", `${status.peer.name} ${status.peer.connected ? "connected" : "not connected"}`);
  showRound(status);
  showFigures(status);
  showParties(status);
  at("troubles").replaceChildren(...troubles(status.troubles));
  say("as-of", `As of ${when(status.time + ahead)}; ${status.server} has been running since ${when(status.started_at)}, and logs from level ${status.log_level} on.`);
  const now = status.rounds.done + status.rounds.aborted;
  if (now !== settled && !fetching) refresh(now);
}

function title(status) {
  const round = status.round ? `round ${status.round.number} ${status.round.state}` : "between rounds";
  return `${status.server} · ${round} · fsl-async`;
}

function mark(pill, look, words) {
  if (pill.textContent !== words) pill.textContent = words;
  pill.className = `pill ${look}`;
}

function showRound({ round, waiting_for }) {
  const state = round ? round.state : "Tossing";
  at("round-title").replaceChildren(round ? `Round ${round.number}` : "Between rounds", ...(round ? [make("span", "tag", round.protocol)] : []));
  say("state", STATES[state] ?? state);
  drawPath(state);
  closes = round && state === "Open" ? round.closes_at : null;
  say("countdown-text", !round || state !== "Open" ? "" : closes === null ? "closes when enough clients are in" : "closes in");
  tick();
  showProgress(round);
  say("waiting", round && round.waiting_for ? `Waiting for ${round.waiting_for}` : waiting_for);
}

function drawPath(state) {
  const now = step(state);
  const items = STEPS.map((name, index) => {
    const item = make("li", index < now ? "past" : index === now ? "now" : "", make("span", "", name));
    if (index === now) item.setAttribute("aria-current", "step");
    return item;
  });
  at("path").replaceChildren(...items);
  at("path").classList.toggle("gone", state === "Aborted");
}

function showProgress(round) {
  const { submissions = 0, evaluated = 0, minimum = 0, maximum = 0 } = round ?? {};
  const reach = Math.max(submissions, minimum, 1);
  const scale = maximum <= 4 * reach ? Math.max(maximum, reach) : 2 * reach;
  const needed = submissions < minimum ? `${minimum} needed` : maximum ? `at most ${maximum.toLocaleString("en")}` : "";
  say("submissions-text", round ? `${submissions.toLocaleString("en")}${needed ? `, ${needed}` : ""}` : "");
  fill("submissions", submissions, scale);
  const needle = at("submissions").querySelector(".mark");
  needle.hidden = !round || minimum >= scale;
  needle.style.left = `${(100 * minimum) / scale}%`;
  say("evaluated-text", round ? `${evaluated.toLocaleString("en")} of ${submissions.toLocaleString("en")}` : "");
  fill("evaluated", evaluated, Math.max(submissions, 1));
}

function fill(id, value, most) {
  at(id).setAttribute("aria-valuenow", value);
  at(id).setAttribute("aria-valuemax", most);
  at(id).querySelector(".fill").style.width = `${Math.min(100, (100 * value) / most)}%`;
}

function showFigures(status) {
  const { round, memory } = status;
  say("done", status.rounds.done.toLocaleString("en"));
  say("aborted", status.rounds.aborted.toLocaleString("en"));
  say("connected", status.clients.connected.toLocaleString("en"));
  say("queue", round ? (round.submissions - round.evaluated).toLocaleString("en") : "0");
  say("memory", bytes(memory.resident));
  at("memory").title = memory.budget ? `${bytes(memory.budget_used)} of ${bytes(memory.budget)} for messages are used` : "";
  say("lag", seconds(status.lag_seconds));
}

function showParties({ peer, clients }) {
  const other = make("li", "peer", `${peer.name}, the other server: ${peer.connected ? "connected" : "not connected"}`);
  if (!peer.connected) other.classList.add("poor-text");
  at("parties").replaceChildren(other, ...clients.names.map((name) => make("li", "", name)));
  say("parties-more", clients.connected ? `${count(clients.connected, "connection")} of ${count(clients.known, "client")}${clients.known > clients.names.length ? `; the first ${clients.names.length} are named` : ""}.` : "No client is connected.");
}

function troubles(list) {
  if (!list.length) return [make("li", "", "None since the server started.")];
  return list.map((trouble) => {
    const often = trouble.times > 1 ? ` ×${trouble.times.toLocaleString("en")}` : "";
    const time = make("time", "", when(trouble.last_at));
    time.dateTime = new Date(trouble.last_at * 1000).toISOString();
    return make("li", trouble.level, make("span", "about", trouble.about + often), " ", time, make("div", "", trouble.explanation));
  });
}

function tick() {
  say("countdown", closes === null ? "" : clock(closes - (Date.now() / 1000 - ahead)));
}

// ---- past rounds

async function refresh(now) {
  fetching = true;
  try {
    await fetchRounds();
    settled = now;
    mark(at("live"), "good", "live");
  } catch {
    mark(at("live"), "caution", "past rounds cannot be read");  // asked again with the next event
  } finally {
    fetching = false;
  }
}

async function fetchRounds() {
  const answer = await fetch("rounds.json");
  if (!answer.ok) throw new Error(`rounds.json: ${answer.status}`);
  const { rounds } = await answer.json();
  clientsChart.show(rounds);
  secondsChart.show(rounds);
  at("past").replaceChildren(...(rounds.length ? [...rounds].reverse().flatMap(rows) : [nothing()]));
}

function nothing() {
  const cell = make("td", "nothing", "No round has been settled yet.");
  cell.colSpan = 6;
  return make("tr", "", cell);
}

function rows(round) {
  const button = make("button", "", String(round.number));
  button.type = "button";
  button.setAttribute("aria-expanded", unfolded.has(round.number));
  button.setAttribute("aria-label", `Round ${round.number}: who was counted`);
  const number = make("td", "", button, ...(round.protocol === "ssa" ? [] : [make("span", "tag", round.protocol)]));
  const trouble = round.aborted ? `aborted: ${round.aborted}` : round.refused ? `sum refused: ${round.refused}` : "";
  const ended = make("td", trouble ? "ended poor-text" : "ended", trouble || "done");
  const others = make("td", "", String(notCounted(round)));
  others.title = reasons(round.not_counted);
  const row = make("tr", "", number, ended, make("td", "", String(round.counted)), others,
    make("td", "", seconds(round.seconds)), make("td", "", when(round.settled_at)));
  button.addEventListener("click", () => unfold(round.number, button, row));
  return unfolded.has(round.number) ? [row, unfolded.get(round.number)] : [row];
}

async function unfold(number, button, row) {
  if (unfolded.has(number)) {
    unfolded.get(number).remove();
    unfolded.delete(number);
  } else {
    const cell = make("td", "names", "…");
    cell.colSpan = 6;
    const more = make("tr", "", cell);
    unfolded.set(number, more);
    row.after(more);
    const answer = await fetch(`rounds/${number}.json`).then((found) => found.json(), () => ({ error: "the server does not answer" }));
    cell.replaceChildren(...names(answer));
  }
  button.setAttribute("aria-expanded", unfolded.has(number));
}

function names(round) {
  if (round.error) return [make("p", "poor-text", round.error)];
  const others = Object.entries(round.excluded).map(([client, reason]) => make("p", "", `Not counted: ${client}, ${REASONS[reason] ?? reason}`));
  return [make("p", "", round.clients.length ? `Counted: ${round.clients.join(", ")}` : "Nobody was counted."), ...others];
}

// ---- live

function lost() {
  mark(at("live"), "caution", "no connection, trying again");
  at("main").classList.add("stale");
}

function watch() {
  const events = new EventSource("events");
  events.addEventListener("open", () => {
    mark(at("live"), "good", "live");
    at("main").classList.remove("stale");
  });
  events.addEventListener("message", (event) => show(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    lost();
    if (events.readyState === EventSource.CLOSED) setTimeout(watch, 3000);
  });
}

watch();
setInterval(tick, 500);
