// Where clients' bulk is, and how much of it. Rule: a server without blobs shows no card.

import { at, say } from "./dom.js";
import { bytes, number } from "./units.js";

export function showBlobs({ blobs }) {
  at("blobs-card").hidden = !blobs;
  say("blobs", blobs ? stored(blobs) : "");
}

function stored({ where, stored_bytes: stored, free_bytes: free, to_erase: erase }) {
  const words = [`${bytes(stored)} of blobs in ${where}`];
  if (free !== null) words.push(`${bytes(free)} free`);
  if (erase) words.push(`${number(erase)} to be erased`);
  return `${words.join(", ")}.`;
}
