// Doors, blobs, and what waits in them. Rule: what a door says of itself is another host's text, and is shown as text.

import { at, make, say } from "./dom.js";
import { bytes, count, number } from "./units.js";

const TITLES = ["Door", "Where", "Clients", "Requests", "Stored", "To forward", "Restarts"];

export function showDoors({ doors, blobs, forwards_waiting: forwards, peer }) {
  at("doors-card").hidden = !doors && !blobs;
  at("doors-table").hidden = !doors || !doors.length;
  at("doors-none").hidden = !doors || doors.length > 0;
  say("doors-title", doors ? "Doors" : "Blobs");
  at("doors-head").replaceChildren(...TITLES.map((title) => make("th", "", title)));
  at("doors").replaceChildren(...(doors ?? []).map(row));
  say("blobs", [blobs ? stored(blobs) : "", forwards ? `${count(forwards, "part")} wait to be forwarded to ${peer.name}.` : ""].filter(Boolean).join(" "));
}

function row({ name, host, process, connected, clients, requests, stored_bytes: stored, forwards_waiting: forwards, restarts }) {
  const where = connected ? `${host}, process ${process}` : "not connected";
  const figures = [number(clients), number(requests), bytes(stored), number(forwards), number(restarts)];
  const cells = [make("td", "number", name), make("td", connected ? "" : "caution-text", where), ...figures.map((figure) => make("td", "", figure))];
  cells.forEach((cell, column) => { cell.dataset.title = TITLES[column]; });
  return make("tr", "", ...cells);
}

function stored({ where, stored_bytes: stored, free_bytes: free, to_erase: erase }) {
  const words = [`${bytes(stored)} of blobs in ${where}`];
  if (free !== null) words.push(`${bytes(free)} free`);
  if (erase) words.push(`${number(erase)} to be erased`);
  return `${words.join(", ")}.`;
}
