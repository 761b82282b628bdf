// Keeps the page as the server stands: it hears of every change, and fetches rounds and clients when they have changed.
// Rules: data comes from the JSON routes alone; a card without contents is hidden, or says what will be there.

import { showBlobs } from "./blobs.js";
import { at, make, mark, say } from "./dom.js";
import { peerOf, stepOf } from "./labels.js";
import { fetchClients, showServers, watchClients } from "./parties.js";
import { fetchRounds, watchRounds } from "./past.js";
import { showRound, tick } from "./round.js";
import { chooseTask, lookAgain, route, watchTasks } from "./tasks.js";
import { bytes, moment, number, seconds } from "./units.js";
import { showWorkers } from "./workers.js";

const TROUBLES = 3;
const TOO_LATE = 1;

let settled = -1;
let fetching = false;
let all = false;
let latest = null;

function show(status) {
  latest = status;
  const ahead = Date.now() / 1000 - status.time;
  document.title = title(status);
  say("server", status.server);
  say("task", status.task);
  mark(at("peer"), status.peer_connected ? "good" : "poor", `${peerOf(status)} ${status.peer_connected ? "connected" : "not connected"}`);
  showAttention(status.attention, ahead);
  showRound(status, ahead);
  showFigures(status);
  showServers(status);
  showBlobs(status);
  showWorkers(status);
  fetchClients(status);
  lookAgain();
  showTroubles(status.troubles);
  at("as-of").replaceChildren("As of ", moment(status.time + ahead), `. ${status.server} has been running since `, moment(status.started_at), `, and logs from level ${status.log_level} on.`);
  const now = status.rounds_done + status.rounds_aborted;
  if (now !== settled && !fetching) refresh(now);
}

function title({ server, task, round, number: coming, stage }) {
  const words = round ? `round ${round.number}: ${stepOf(round)}` : stage === "away" ? "not served" : stage === "resting" ? "no further round" : `${stage} round ${coming}`;
  return `${server} ${task} · ${words} · fsl-async`;
}

function showFigures(status) {
  const { round, budget, clients_known: known, clients_present: present } = status;
  say("done", number(status.rounds_done));
  say("aborted", number(status.rounds_aborted));
  say("connected", known ? `${number(present)} of ${number(known)}` : number(present));
  say("queue", round ? number(Math.max(0, round.submissions - round.evaluated)) : "0");
  say("memory", bytes(status.resident_bytes));
  at("memory").title = budget ? `${bytes(status.budget_used)} of ${bytes(budget)} for messages are used` : "";
  say("lag", seconds(status.lag_seconds));
  at("lag-tile").classList.toggle("poor-text", status.lag_seconds > TOO_LATE);
  document.querySelectorAll(".note").forEach((tile) => tile.remove());
  at("figures").append(...status.notes.map(({ title, text, more, poor }) => {
    const tile = make("div", `card tile note${poor ? " poor-text" : ""}`, make("dt", "", title), make("dd", "", text));
    tile.title = more;
    return tile;
  }));
}

// What waits or is gone, above everything else; left as it is while it stays the same, so that it is read out once.
function showAttention(list, ahead) {
  const words = JSON.stringify(list);
  if (at("attention").dataset.words === words) return;
  at("attention").dataset.words = words;
  at("attention").hidden = !list.length;
  at("attention").replaceChildren(...list.map(({ about, since, text, remedy, page, poor }) => make("div", poor ? "poor" : "caution",
    make("h2", "", about, ...(since === null ? [] : [make("span", "since", " since ", moment(since + ahead))])),
    make("p", "", text), make("p", "", make("b", "", remedy), ` See ${page}.`))));
}

function showTroubles(list) {
  const shown = all ? list : list.slice(0, TROUBLES);
  at("problems").hidden = !list.length;
  at("troubles").replaceChildren(...shown.map((trouble) => {
    const often = trouble.times > 1 ? ` ×${number(trouble.times)}` : "";
    return make("li", trouble.level, make("span", "about", trouble.about + often), " ", moment(trouble.last_at), make("div", "", trouble.explanation));
  }));
  at("troubles-more").hidden = list.length <= TROUBLES;
  say("troubles-more", all ? "Only the latest" : `${list.length - TROUBLES} more`);
}

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

// ---- live

function lost() {
  mark(at("live"), "caution", "no connection, trying again");
  at("main").classList.add("stale");
}

async function watch() {
  try {
    await chooseTask();
  } catch {
    lost();
    setTimeout(watch, 3000);
    return;
  }
  const events = new EventSource(route("events"));
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

at("troubles-more").addEventListener("click", () => {
  all = !all;
  showTroubles(latest.troubles);
});
watchTasks();
watchClients();
watchRounds();
watch();
setInterval(tick, 500);
