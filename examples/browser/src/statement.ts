/** What both servers sign of a round's end, and how it is checked. */
import { type Bytes, H, NOTHING, le, refuse, same, utf8 } from "./bytes.js";
import { type Fields, bin, either, isMap, list, map, oneOf, text, unpack, whole } from "./messages.js";
import { DESCRIBED } from "./round.js";
import { type Public, signed } from "./submission.js";

const STATEMENT = map({
  client: text, round_id: bin(32), number: whole,
  ending: either(map({ type: oneOf("done") }), map({ type: oneOf("aborted", "refused"), explanation: text })),
  participants: whole, root: bin(32),
  seat: either(oneOf(null), map({ place: whole, digest: bin(32), salt: bin(16), path: bin() })),
  excluded: oneOf("", "only_s0", "only_s1", "mismatch", "proof", "bound"),
  model: DESCRIBED, union: list(map({ name: text, size: whole, digest: bin(32) })), names: list(text),
  opened_rows: isMap,
});

/** Read a server's statement for a client; refused if it is of another one, contradicts itself, or is not signed. */
export function readStatement(bytes: Bytes, signature: Bytes, server: Public, client: string, round_id: Bytes,
  task: Fields): Fields {
  refuse(signed(signature, server.statement, "fsl.statement", bytes), `a statement that ${server.name} did not sign`);
  const [told, rest] = unpack(bytes);
  refuse(STATEMENT(told) && !rest.length, `a statement of ${server.name} with other fields than it has`);
  refuse(told.client === client && same(told.round_id, round_id), "a statement of another client or round");
  const { seat, participants, root, names } = told, named = task.participants === "names";
  refuse(participants <= task.max_clients, `${participants} clients: more than the task lets take part`);
  refuse(!seat || (seat.place < participants && !told.excluded), "a client on the list that is excluded, or behind it");
  const counted = task.min_contributors !== null && told.ending.type !== "aborted";
  const blocks = task.blocks.filter(({ type }: Fields) => counted && type === "sparse").map(({ name }: Fields) => name);
  const opened = Object.keys(told.opened_rows);
  refuse(opened.sort().join() === blocks.sort().join(), "opened rows that the task does not count");
  refuse(names.length === (named ? participants : 0), "so many names as are not due");
  refuse(names.includes(client) === (named && !!seat), "names that do not fit the list");
  refuse(participants || same(root, rootOf(0, NOTHING)), "a list of nobody with another root");
  refuse(!seat || same(root, seatRoot(client, seat, participants)), "a seat that does not lead to the root");
  return told;
}

const rootOf = (count: number, top: Bytes) => H("fsl.roster-root", le(count, 8), top);

function seatRoot(client: string, { place, digest, salt, path }: Fields, count: number): Bytes {
  let node = H("fsl.roster-leaf", salt, utf8(client), digest), at = 0;
  for (let size = count, here = place; size > 1; size = Math.ceil(size / 2), here >>= 1) {
    if ((here ^ 1) >= size) continue;
    const neighbour = path.subarray(at, (at += 32));
    node = H("fsl.roster-node", ...(here % 2 ? [neighbour, node] : [node, neighbour]));
  }
  refuse(at === path.length, "a path of another length than the list implies");
  return rootOf(count, node);
}

/** What both say; refused if they differ in more than the explanation of an abort, or have another submission. */
export function agreed(told: Fields[], statements: Bytes[], submission: Bytes | null): Fields {
  const [first, second] = told.map(({ ending, ...rest }) => JSON.stringify([ending.type, rest]));
  const [{ ending, seat }] = told;
  refuse(ending.type === "done" ? same(statements[0], statements[1]) : first === second,
    "the two servers say different things of the round");
  refuse(!seat || (submission && same(seat.digest, submission)), "another submission was counted in our name");
  return told[0];
}
