// The workers of a cluster, and what waits for them. Rule: what a worker says of itself is shown as text.

import { at, make, say } from "./dom.js";
import { bytes, count, number } from "./units.js";

const TITLES = ["Worker", "Host", "Adding", "Held"];

export function showWorkers({ engine }) {
  at("workers-card").hidden = !engine;
  if (!engine) return;
  const { where, connected, workers, waiting, open, sealed, given_again: again, bytes_taken: taken } = engine;
  at("workers-table").hidden = !workers.length;
  at("workers-none").hidden = workers.length > 0;
  say("workers-none", connected ? "No worker is there, so rounds wait for one." : `The cluster at ${where} is away, so rounds wait for it.`);
  at("workers-head").replaceChildren(...TITLES.map((title) => make("th", "", title)));
  at("workers").replaceChildren(...workers.map(row));
  const words = [`${count(waiting, "submission")} wait for a worker`, `${count(open, "partial sum")} open`, `${number(sealed)} have come`];
  if (again) words.push(`${count(again, "submission")} given out again`);
  say("workers-sums", `${words.join(", ")}; ${bytes(taken)} taken.`);
}

function row({ name, host, adding, held }) {
  const cells = [make("td", "number", name), make("td", "", host), make("td", "", number(adding)), make("td", "", number(held))];
  cells.forEach((cell, column) => { cell.dataset.title = TITLES[column]; });
  return make("tr", "", ...cells);
}
