/** What both servers sign of a round's end, and how it is checked. */
import { type Bytes, H, concat, le, refuse, same, utf8 } from "./bytes.js";
import { type Map, bin, either, isMap, list, map, nil, oneOf, text, unpack, whole } from "./messages.js";
import { type Public, signed } from "./submission.js";

const DESCRIBED = list(map({ name: text, dtype: text, digest: bin(32) }));
const STATEMENT = map({
  client: text, round_id: bin(32), number: whole,
  ending: either(map({ type: oneOf("done") }), map({ type: oneOf("aborted", "refused"), explanation: text })),
  participants: whole, root: bin(32),
  seat: either(nil, map({ place: whole, digest: bin(32), salt: bin(16), path: bin() })),
  excluded: oneOf("", "only_s0", "only_s1", "mismatch", "proof", "bound"),
  model: DESCRIBED, union: list(map({ name: text, size: whole, digest: bin(32) })), names: list(text), opened_rows: isMap,
});

/** Whose statement is awaited, and of what. */
export interface Awaited {
  client: string;
  round_id: Bytes;
  task: Map;
}

/** Read one server's statement; refused if it is of another client or round, contradicts itself, or is not signed. */
export function readStatement(bytes: Bytes, signature: Bytes, server: Public, awaited: Awaited): Map {
  refuse(signed(signature, server.statement, "fsl.statement", bytes), `a statement that ${server.name} did not sign`);
  const [told, rest] = unpack(bytes);
  refuse(STATEMENT(told) && !rest.length, `a statement of ${server.name} with other fields than it has`);
  refuse(told.client === awaited.client && same(told.round_id, awaited.round_id), "a statement of another client or round");
  const { seat, participants, root, names, task = awaited.task } = told;
  refuse(participants <= task.max_clients, `${participants} clients: more than the task lets take part`);
  refuse(!seat || (seat.place < participants && !told.excluded), "a client on the list that is excluded, or beyond its end");
  const counted = task.min_contributors !== null && told.ending.type !== "aborted";
  const opened = counted ? task.blocks.filter((block: Map) => block.type === "sparse").map((block: Map) => block.name) : [];
  refuse(Object.keys(told.opened_rows).sort().join("\n") === opened.sort().join("\n"), "opened rows that the task does not count");
  const named = task.participants === "names";
  refuse(names.length === (named ? participants : 0) && names.includes(told.client) === (named && !!seat), "other names than are due");
  refuse(participants || same(root, rootOf(0, new Uint8Array(0))), "a list of nobody with another root");
  if (seat) refuse(same(root, seatRoot(awaited.client, seat, participants)), "a seat that does not lead to the root");
  return told;
}

const rootOf = (count: number, top: Bytes) => H("fsl.roster-root", le(count, 8), top);

function seatRoot(name: string, { place, digest, salt, path }: Map, count: number): Bytes {
  let node = H("fsl.roster-leaf", salt, utf8(name), digest), at = 0;
  for (let size = count, here = place; size > 1; size = Math.ceil(size / 2), here = Math.floor(here / 2)) {
    if ((here ^ 1) >= size) continue;
    const neighbour = path.subarray(at, (at += 32));
    node = H("fsl.roster-node", ...(here % 2 ? [neighbour, node] : [node, neighbour]));
  }
  refuse(at === path.length, "a path of another length than the list implies");
  return rootOf(count, concat([node]));
}

/** What both say; refused if they differ in more than the explanation of an abort, or have another submission. */
export function agreed(told: Map[], statements: Bytes[], submission: Bytes | null): Map {
  const [first, second] = told, explained = ({ ending }: Map) => ending.type;
  const equal = first.ending.type !== "done" && explained(first) === explained(second)
    ? Object.keys(first).every((name) => name === "ending" || JSON.stringify(first[name]) === JSON.stringify(second[name]))
    : same(statements[0], statements[1]);
  refuse(equal, "the two servers say different things of the round");
  refuse(!first.seat || (submission && same(first.seat.digest, submission)), "another submission was counted in our name");
  return first;
}
