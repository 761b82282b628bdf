// Who is who, and who has submitted. Rules: what two operators compare stands in both pages in the same order and the same
// letters; the list of clients is read page by page, because there may be a hundred thousand.

import { ask, at, make, say } from "./dom.js";
import { peerOf } from "./labels.js";
import { route } from "./tasks.js";
import { count, number } from "./units.js";

const GROUPS = { submitted: "Submitted", missing: "Not yet", connected: "Connected", all: "All" };
const PAUSE = 1000;

// ---- who is who

export function showServers(status) {
  const { places, fingerprints, round, last } = status;
  at("servers").replaceChildren(...places.map((place, index) => server(place, `S${index}`, status)));
  const after = last ? `Model after round ${last.number}` : "Model at the start";
  const rows = [
    ["Task", fingerprints.task, verdict(status, status.peer_connected)],
    [after, fingerprints.model, verdict(status, status.stage === "running")],
  ];
  if (round) rows.push([`Round ${round.number}`, round.fingerprint, "covers the task, the model, both servers' keys and the round's seed"]);
  rows.push(...fingerprints.keys.map((key, index) => [`Key of S${index}`, key, ""]));
  at("compare").replaceChildren(...rows.filter(([, letters]) => letters).flatMap(([what, letters, words]) =>
    [make("dt", "", what), make("dd", "", letterGroups(letters), ...(words ? [make("span", "quiet", words)] : []))]));
}

function letterGroups(letters) {
  return make("code", "letters", ...letters.split(" ").flatMap((group) => [make("span", "", group), " "]));
}

// A connection is refused where the task differs, and no round opens where the model does.
function verdict(status, same) {
  return `${peerOf(status)} ${same ? "has the same" : status.peer_connected ? "has not said yet" : "is not connected"}`;
}

function server({ operator, address }, name, status) {
  const here = name === status.server;
  const [release, other] = here ? [status.release, status.peer_release] : [status.peer_release, status.release];
  const differs = !here && release && other && release !== other;
  const version = release ? `version ${release}${differs ? `, and this server ${other}` : ""}` : here ? "" : "version not said yet";
  return make("div", here ? "server here" : "server",
    make("p", "", make("b", "", name), here ? " this server" : " the other server"),
    ...[operator || "operator not named in the task file", address].filter(Boolean).map((words) => make("p", "", words)),
    ...(version ? [make("p", differs ? "caution-text" : "", version)] : []));
}

// ---- clients

let asked = { show: "", search: "", page: 1 };
let due = false;
let last = 0;
let running = null;

export function fetchClients(status) {
  running = status.round;
  const known = status.clients_known;
  at("clients-some").hidden = !known;
  at("clients-none").hidden = known > 0;
  say("clients-none", "No client is known yet. Those on the list, and those that enrol, appear here.");
  if (known) later();
}

export function watchClients() {
  at("search").addEventListener("input", () => change({ search: at("search").value, page: 1 }));
  at("back").addEventListener("click", () => change({ page: asked.page - 1 }));
  at("next").addEventListener("click", () => change({ page: asked.page + 1 }));
}

function change(wish) {
  asked = { ...asked, ...wish };
  refresh();
}

// At most once a second, however many events there are.
function later() {
  if (due) return;
  due = true;
  setTimeout(() => { due = false; refresh(); }, Math.max(0, last + PAUSE - Date.now()));
}

async function refresh() {
  last = Date.now();
  const submits = running !== null && running.protocol !== "psr";
  const fitting = submits ? Object.keys(GROUPS) : ["all", "connected"];
  const show = fitting.includes(asked.show) ? asked.show : fitting[0];
  const wish = asked;
  const answer = await ask(route("clients.json", { show, search: wish.search, page: wish.page })).catch(() => null);  // asked again with the next event
  if (answer === null || wish !== asked) return;
  asked.page = answer.page;
  drawGroups(fitting, show, answer.counts);
  at("names").replaceChildren(...(answer.clients.length ? answer.clients.map((client) => row(client, show === "all" || show === "connected" ? submits : false, submits)) : [make("li", "none quiet", nobody(show, wish.search))]));
  at("pager").hidden = answer.pages <= 1;
  say("page", `${number(answer.page)} of ${number(answer.pages)}, ${count(answer.matching, "client")}`);
  at("back").disabled = answer.page <= 1;
  at("next").disabled = answer.page >= answer.pages;
}

function drawGroups(fitting, show, counts) {
  if (at("groups").children.length !== fitting.length) {
    at("groups").replaceChildren(...fitting.map((name) => {
      const button = make("button", "group");
      button.type = "button";
      button.addEventListener("click", () => change({ show: name, page: 1 }));
      return button;
    }));
  }
  fitting.forEach((name, index) => {
    const button = at("groups").children[index];
    const words = `${GROUPS[name]} ${number(counts[name])}`;
    if (button.textContent !== words) button.textContent = words;
    button.setAttribute("aria-pressed", name === show);
  });
}

function row({ name, connections, drawn, submitted }, told, submits) {
  const words = [told ? (submitted ? "submitted" : drawn ? "not yet" : "not drawn") : "", connections ? "online" : "away"].filter(Boolean).join(", ");
  return make("li", submits && submitted ? "in" : connections ? "here" : "", make("span", "name", name), " ", make("span", "quiet", words));
}

function nobody(show, search) {
  if (search) return `Nobody here has “${search}” in the name.`;
  return { submitted: "Nobody has submitted yet.", missing: "All known clients have submitted.", connected: "No client is connected.", all: "No client is known." }[show];
}
