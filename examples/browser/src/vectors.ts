/** The wire's own examples, docs/wire-vectors.json, made again before the page speaks to anybody. */
import { x25519 } from "@noble/curves/ed25519.js";
import { hash } from "./aes.js";
import { type Bytes, H, K, NOTHING, bytesOf, concat, hex, keyedH, unhex, utf8, words } from "./bytes.js";
import { type Fields, pack, readReply } from "./messages.js";
import { Handshake, Reader, Writer, checkWelcome } from "./noise.js";
import { Placement } from "./placement.js";
import { Round, limits, readTask } from "./round.js";
import { readStatement } from "./statement.js";
import { type Public, type Updates, checkReceipt, elements, retrievalPart, submit } from "./submission.js";
import { type Forestry, openAnswers, plant } from "./trees.js";

type Compare = (got: unknown, expected: unknown, what: string) => void;

const plainly = (value: unknown) =>
  value instanceof Uint8Array ? hex(value) : typeof value === "string" ? value : JSON.stringify(value);

/** Make all examples again of what this client does; returns how many. Throws at the first that is different. */
export function runVectors(vectors: Fields): number {
  let count = 0;
  const compare: Compare = (got, expected, what) => {
    const [made, due] = [plainly(got), plainly(expected)];
    if (made !== due) throw new Error(`${what}: ${due.slice(0, 80)} expected, got ${made.slice(0, 80)}`);
    count++;
  };
  runPrimitives(vectors, compare);
  runConnection(vectors, compare);
  for (const [name, { fields, bulk, bytes }] of Object.entries<Fields>(vectors.messages)) {
    if (!/TaskIs|Opened|Answer|Block|Receipt|Finished|Refused/.test(name)) continue;
    const reply = readReply(unhex(bytes));
    compare(concat([pack(reply.head), reply.bulk]), bytes, name);
    compare([reply.head.type, hex(reply.bulk)], [fields.type, bulk], name);
  }
  const { verified, counted, "semi-honest": semiHonest, "two blocks": twoBlocks, statements } = vectors;
  for (const each of [verified, counted, semiHonest, twoBlocks]) runRound(each, statements, compare);
  runStatement(vectors, compare);
  return count;
}

function runPrimitives(vectors: Fields, compare: Compare): void {
  const { digests, primitives } = vectors;
  for (const { tag, parts, digest, key = "" } of [digests.unkeyed, digests.keyed, digests.long]) {
    compare(keyedH(unhex(key), tag, ...parts.map(unhex)), digest, `a digest under ${tag}`);
  }
  compare(K(digests.key.tag, ...digests.key.parts.map(unhex)), digests.key.derived, "a derived key");
  compare(bytesOf(hash(unhex(primitives.key), words(unhex(primitives.block)))), primitives.hash, "the hash of trees");
  for (const { k, m, least, most } of vectors.bins) compare(limits(k, m), [least, most], `bins of ${k} of ${m} rows`);
  for (const { key, rows, "of the first rows, by segment": segments } of vectors.permutations) {
    const placement = new Placement(unhex(key), rows), made = (of: number[], segment: number) =>
      of.map((_, row) => placement.permuted(segment, row));
    compare(segments.map(made), segments, `permutations of ${rows} rows`);
  }
  for (const { canonical, digest } of vectors.tasks) compare(H("fsl.task", unhex(canonical)), digest, "a task");
  for (const { bits, fraction_bits, numbers, elements: expected } of vectors["fixed point"]) {
    compare(elements({ ring: { bits, fraction_bits }, largest: null }, numbers), expected, `elements of ${bits} bits`);
  }
}

function runConnection({ noise, records, preamble }: Fields, compare: Compare): void {
  const [ephemeral] = noise["ephemeral private"], [second, third] = noise["contents of the second and third"];
  const server = x25519.getPublicKey(unhex(noise["server private"])) as Bytes;
  const one = new Handshake(unhex(preamble.prologue), server, unhex(noise["client private"]), unhex(ephemeral));
  compare(one.first(), noise.messages[0], "the first message of the handshake");
  compare(one.second(unhex(noise.messages[1])), second, "the second message of the handshake");
  compare(one.third(unhex(third)), noise.messages[2], "the third message of the handshake");
  compare(one.hash, noise["handshake hash"], "the handshake's digest");
  one.split()[1].feed(unhex(noise.welcome)).forEach(checkWelcome);
  const reader = new Reader(unhex(records.key)), writer = new Writer(unhex(records.key));
  const [first, last] = [...unhex(records.stream)].flatMap((byte) => reader.feed(Uint8Array.of(byte)));
  const stream = [writer.message(first), writer.ping(), writer.message(last), writer.close()];
  compare(concat(stream), records.stream, "records, byte by byte");
  const pinging = new Writer(unhex(records.key)), pings = Array.from({ length: 1025 }, pinging.ping);
  compare(concat(pings.slice(1023)), records["1024th and 1025th PING"], "a key's replacement");
}

export const roundOf = ({ configuration, task }: Fields) =>
  new Round(unhex(configuration), readTask(unhex(task)), unhex(task));

export function forestryOf(vector: Fields, round: Round): Forestry {
  const places = vector.positions.map((forest: Fields[]) => forest.map((one) => ({ ...one, row: one.row ?? -1 })));
  return plant(round, vector.client, places, vector["master seeds"].map(unhex));
}

function runRound(vector: Fields, client: Fields, compare: Compare): void {
  const round = roundOf(vector), trees = forestryOf(vector, round), { submission, retrieval, keys, carriers } = vector;
  compare(round.id, vector["round id"], "a round's digest");
  compare([round.expandKey(), round.selectKey()].map(hex), [keys.expand, keys.select], "the keys of trees");
  compare(Object.keys(carriers).map((name) => round.carrier(name)), Object.values(carriers), "carriers");
  trees.planted.forEach(({ forest, nodes }, at) => {
    const due = vector.forests[at], key = "leaves of S0 and S1";
    for (const name of ["leaves", "positions", "depth", "trees"] as const) compare(forest[name], due[name], name);
    nodes.forEach((side, server) =>
      compare(bytesOf(side), vector.positions[at].map((one: Fields) => one[key][server]).join(""), "leaves"));
  });
  compare([...trees.commitments, trees.digest].map(hex), [...vector.commitments, vector["tree digest"]], "trees");
  const { part, digest } = retrievalPart(trees), opened = openAnswers(round, trees, retrieval.answers.map(unhex));
  compare([part, digest].map(hex), [retrieval.part, retrieval.digest], "a retrieval");
  const values: Updates = { sparse: {}, dense: {} }, several = round.sparse.length > 1;
  round.sparse.forEach(({ name, rows }, at) => {
    const wanted: number[] = several ? vector.rows[at] : vector.rows;
    const model = unhex(vector.model[name]), size = model.length / rows, all = submission.values;
    for (const row of wanted) compare(opened[name].get(row), model.slice(row * size, (row + 1) * size), `row ${row}`);
    values.sparse[name] = new Map((several ? all[at] : all).map((of: number[], place: number) => [wanted[place], of]));
  });
  for (const { name } of round.dense) values.dense[name] = submission["values of the dense block"];
  const made = submit(round, publicOf(client), trees, 1, values, unhex(submission.part).slice(0, 16));
  compare(made.bulk, submission.part + submission["dense share"], "a submission");
  const due = [submission.digest, submission["submission digest"]];
  compare([made.fields.public_digest, made.digest].map(hex), due, "a submission's digests");
}

const publicOf = ({ name, "channel key": channel, "statement key": statement }: Fields): Public =>
  ({ name, channel: unhex(channel), statement: unhex(statement) });

function runStatement({ statements, verified }: Fields, compare: Compare): void {
  const { name, statement, receipt, "round id": id, "submission digest": submission } = statements;
  const server = { name: "S0", channel: NOTHING, statement: unhex(statements["server's statement key"]) };
  const signature = unhex(statements["statement's signature"]), task = readTask(unhex(verified.task));
  const told = readStatement(unhex(statement), signature, server, name, unhex(id), task);
  compare(told.ending.type, "done", "a statement");
  checkReceipt({ digest: unhex(submission), signature: unhex(receipt) }, unhex(submission), server);
  const own = publicOf(statements);
  compare(H("fsl.identity", utf8(name), own.channel, own.statement), statements["identity digest"], "an identity");
}
