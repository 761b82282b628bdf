// The round: its three steps, which one it is at, since when and what it waits for; its time so far; its machine's states.
// Rule: the protocol's own words stand in the list of states alone.

import { at, make, say } from "./dom.js";
import { ENDED, PATHS, STATES, TIMES, peerOf, protocol, stepOf } from "./labels.js";
import { clock, count, moment, number, seconds, unit } from "./units.js";

const NAMES = ["collect", "compute", "done"];

let ahead = 0;
let closes = null;
let heard = null;

export function showRound(status, offset) {
  ahead = offset;
  const { round, last } = status;
  const run = round ?? last;
  const kind = protocol(run ? run.protocol : "ssa");
  at("round-title").replaceChildren(heading(status), ...(run ? [make("span", "tag", kind.name)] : []));
  drawSteps(round ? NAMES.indexOf(stepOf(round)) : last && (last.ended !== "done" || !status.attention.length) ? 2 : -1, kind, !round && last ? last.ended : "done");
  say("state", sentence(status, kind));
  closes = round && round.state === "Open" ? round.closes_at : null;
  heard = status;
  say("countdown-text", !round || round.state !== "Open" ? "" : closes === null ? "closes when enough clients are in" : "closes in");
  if (round) at("since").replaceChildren("Since ", moment(round.since), ", for ", make("span", "figures"));
  else at("since").replaceChildren(...(last ? ["Since ", moment(last.settled_at)] : []));
  tick();
  at("progress").hidden = !round || round.protocol === "psr";
  if (round) showProgress(round);
  at("spent").hidden = !run;
  drawStates(round);
}

// What passes on this side without a word from the server: the countdown, and how long the step has taken.
export function tick() {
  const now = Date.now() / 1000 - ahead;
  say("countdown", closes === null ? "" : clock(closes - now));
  const span = at("since").querySelector(".figures");
  if (span && heard.round) span.textContent = clock(now - heard.round.since);
  if (heard && (heard.round ?? heard.last)) showSpent(heard.round ? grown(heard.round, Math.max(0, now - heard.time)) : heard.last, peerOf(heard));
}

// A round whose present activity has gone on for some seconds.
function grown(round, passed) {
  return { ...round, times: { ...round.times, [round.activity]: round.times[round.activity] + passed } };
}

function heading({ round, last, stage, number: coming }) {
  if (round) return `Round ${round.number}`;
  if (stage === "resting") return last ? `Round ${last.number}, the last one` : "No round";
  return last ? `Round ${last.number} is over` : "Before the first round";
}

function sentence(status, kind) {
  const { round, last, stage, peer_connected: connected } = status;
  const away = `${peerOf(status)} is not connected. `;
  if (round) {
    const waits = round.waiting_for && round.waiting_for !== "clients" ? ` ${round.activity === "computing" ? "Now" : "Waiting for"}: ${round.waiting_for}.` : "";
    return `${connected ? "" : away}${kind[stepOf(round)]}${missing(round)}${waits}`;
  }
  const before = !last ? "" : last.ended === "done" ? `${kind.done} ` : `Round ${last.number} was ${last.ended}: ${last.explanation}. `;
  if (stage === "away") return `${before}This task is not served now: ${status.waiting_for}.`;
  if (stage === "resting") return `${before}No further round opens.`;
  if (stage === "drawing") return `${before}${connected ? "" : away}Clients ask to take part in round ${status.number}: ${number(status.asked)} so far. Then the servers draw some of them.`;
  const next = `round ${status.number} opens once both servers have drawn its seed.`;
  return `${before}${connected ? `Next: ${next}` : `${away}${next[0].toUpperCase()}${next.slice(1)}`}`;
}

function missing({ activity, submissions, minimum, retrievals, protocol: name }) {
  if (name === "psr") return ` ${count(retrievals, "retrieval")} answered so far.`;
  if (activity !== "collecting" || submissions >= minimum) return "";
  return ` ${count(minimum - submissions, "more client")} ${minimum - submissions === 1 ? "is" : "are"} needed.`;
}

// How far an aborted round came is in its time, below; none of its steps counts as done.
function drawSteps(now, kind, ended) {
  const items = NAMES.map((name, index) => {
    const failed = index === 2 && ended !== "done";
    const isOver = ended !== "aborted" && (index < now || (index === now && name === "done"));
    const item = make("li", [isOver && "past", index === now && "now", failed && "failed"].filter(Boolean).join(" "),
      make("span", "step", failed ? ENDED[ended] : name), make("span", "idle", failed ? "model as before" : kind.idle[index]));
    if (index === now) item.setAttribute("aria-current", "step");
    return item;
  });
  at("steps").replaceChildren(...items);
}

function showProgress({ submissions, evaluated, minimum, maximum }) {
  const reach = Math.max(submissions, minimum, 1);
  const scale = maximum <= 4 * reach ? Math.max(maximum, reach) : 2 * reach;
  const needed = submissions < minimum ? `${number(minimum)} needed` : maximum ? `at most ${number(maximum)}` : "";
  say("submissions-text", `${number(submissions)}${needed ? `, ${needed}` : ""}`);
  fill("submissions", submissions, scale);
  const needle = at("submissions").querySelector(".mark");
  needle.hidden = minimum >= scale;
  needle.style.left = `${(100 * minimum) / scale}%`;
  say("evaluated-text", `${number(evaluated)} of ${number(submissions)}`);
  fill("evaluated", evaluated, Math.max(submissions, 1));
}

function fill(id, value, most) {
  at(id).setAttribute("aria-valuenow", value);
  at(id).setAttribute("aria-valuemax", most);
  at(id).querySelector(".fill").style.width = `${Math.min(100, (100 * value) / most)}%`;
}

// ---- its time

function showSpent(run, peer) {
  const shown = spans(run.times);
  const { name, of } = unit(shown.map(([, value]) => value));
  const legend = shown.map(([key, value]) => make("li", key, `${words(key, peer)} ${of(value)} ${name}`));
  if (run.protocol !== "psr") legend.push(make("li", "evaluation", `evaluation ${seconds(run.evaluating)}, within it`));
  at("spent").replaceChildren(bar(run, peer), make("ul", "legend", ...legend));
}

export function words(key, peer) {
  return key === "waiting" ? `${TIMES.waiting} ${peer}` : TIMES[key];
}

function spans(times) {
  return Object.keys(TIMES).map((key) => [key, times[key]]).filter(([key, value]) => key !== "interrupted" || value > 0);
}

// A round's time as a bar, with its evaluation as a thinner one below, on the same scale.
export function bar(run, peer) {
  const shown = spans(run.times);
  const whole = Math.max(shown.reduce((sum, [, value]) => sum + value, 0), run.evaluating, 1e-9);
  const part = (look, value) => {
    const made = make("span", look);
    made.style.width = `${(100 * value) / whole}%`;
    return made;
  };
  const made = make("div", "timebar", make("div", "split", ...shown.map(([key, value]) => part(key, value))), part("evaluation", run.evaluating));
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", [...shown.map(([key, value]) => `${words(key, peer)} ${seconds(value)}`), `evaluation ${seconds(run.evaluating)}`].join(", "));
  return made;
}

// ---- its machine

function drawStates(round) {
  at("states").hidden = !round;
  if (!round) return;
  const path = PATHS[round.protocol] ?? PATHS.ssa;
  const place = round.state === "Closing" ? 1 : path.length - 1;
  const shown = path.includes(round.state) ? path : [...path.slice(0, place), round.state, ...path.slice(place)];
  const now = shown.indexOf(round.state);
  at("path").replaceChildren(...shown.map((name, index) => {
    const item = make("li", index < now ? "past" : index === now ? "now" : "", make("b", "", name), " ", STATES[name] ?? "");
    if (index === now) item.setAttribute("aria-current", "step");
    return item;
  }));
}
