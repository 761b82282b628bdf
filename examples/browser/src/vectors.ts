/** The wire's own examples, run before the page speaks to anybody: docs/wire-vectors.json and docs/wire-refusals.json. */
import { x25519 } from "@noble/curves/ed25519.js";
import { hash } from "./aes.js";
import { type Bytes, H, K, NOTHING, Refusal, bytesOf, concat, hex, keyedH, refuse, unhex, utf8, words } from "./bytes.js";
import { expect } from "./link.js";
import { type Map, pack, readReply } from "./messages.js";
import { Handshake, Reader, Writer, checkPreamble, checkWelcome } from "./noise.js";
import { announced, checkBlock, together } from "./participant.js";
import { Placement } from "./placement.js";
import { Round, limits, readTask } from "./round.js";
import { agreed, readStatement } from "./statement.js";
import { type Public, type Updates, checkReceipt, elements, retrievalPart, submit } from "./submission.js";
import { type Forestry, openAnswers, plant } from "./trees.js";

const VARIANTS = ["verified", "counted", "semi-honest", "two blocks"];

function equal(got: unknown, expected: unknown, what: string): void {
  const said = got instanceof Uint8Array ? hex(got) : typeof got === "string" ? got : JSON.stringify(got);
  const due = typeof expected === "string" ? expected : JSON.stringify(expected);
  if (said !== due) throw new Error(`${what}: ${due.slice(0, 80)} expected, got ${said.slice(0, 80)}`);
}

/** Run all examples of what this client does; returns how many comparisons were made. Throws at the first difference. */
export function runVectors(vectors: Map): number {
  let count = 0;
  const check = (got: unknown, expected: unknown, what: string) => {
    equal(got, expected, what);
    count++;
  };
  const { digests, primitives } = vectors;
  for (const { tag, parts, digest, key = "" } of [digests.unkeyed, digests.keyed, digests.long]) {
    check(keyedH(unhex(key), tag, ...parts.map(unhex)), digest, `a digest under ${tag}`);
  }
  check(K(digests.key.tag, ...digests.key.parts.map(unhex)), digests.key.derived, "a derived key");
  check(bytesOf(hash(unhex(primitives.key), words(unhex(primitives.block)))), primitives.hash, "the fixed-key hash");
  for (const { k, m, least, most } of vectors.bins) check(limits(k, m), [least, most], `the bins of ${k} of ${m} rows`);
  for (const { key, rows, "of the first rows, by segment": segments } of vectors.permutations) {
    const placement = new Placement(unhex(key), rows);
    segments.forEach((expected: number[], segment: number) =>
      check(expected.map((_, row) => placement.permuted(segment, row)), expected, `a permutation of ${rows} rows`),
    );
  }
  for (const { canonical, digest } of vectors.tasks) {
    readTask(unhex(canonical));
    check(H("fsl.task", unhex(canonical)), digest, "a task's digest");
  }
  for (const { bits, fraction_bits, numbers, elements: expected } of vectors["fixed point"]) {
    check(elements({ ring: { bits, fraction_bits }, largest: null }, numbers), expected, `elements of ${bits} bits`);
  }
  runMessages(vectors, check);
  runConnection(vectors, check);
  for (const name of VARIANTS) runRound(vectors[name], vectors.statements, check);
  runStatements(vectors, check);
  return count;
}

type Check = (got: unknown, expected: unknown, what: string) => void;

function runMessages(vectors: Map, check: Check): void {
  for (const [name, { fields, bulk, bytes }] of Object.entries<Map>(vectors.messages)) {
    if (/TaskIs|Opened|Answer|Block|Receipt|Finished|Refused/.test(name)) {
      const reply = readReply(unhex(bytes));
      check(concat([pack(reply.head), reply.bulk]), bytes, name);
      check(reply.bulk, bulk, name);
      check(reply.head.type, fields.type, name);
    }
  }
}

function runConnection(vectors: Map, check: Check): void {
  const { noise, records, preamble } = vectors;
  const [ephemeral] = noise["ephemeral private"], [second, third] = noise["contents of the second and third"];
  const server = x25519.getPublicKey(unhex(noise["server private"])) as Bytes;
  const one = new Handshake(unhex(preamble.prologue), server, unhex(noise["client private"]), unhex(ephemeral));
  check(one.first(), noise.messages[0], "the first message of the handshake");
  check(one.second(unhex(noise.messages[1])), second, "the second message of the handshake");
  check(one.third(unhex(third)), noise.messages[2], "the third message of the handshake");
  check(one.hash, noise["handshake hash"], "the handshake's digest");
  const [welcome] = one.split()[1].feed(unhex(noise.welcome));
  checkWelcome(welcome);
  const key = unhex(records.key), reader = new Reader(key), got: Bytes[] = [];
  for (const byte of unhex(records.stream)) got.push(...reader.feed(Uint8Array.of(byte)));
  const writer = new Writer(key);
  check(concat([...got.map((each) => writer.message(each)), writer.ping(), writer.close()]).length, records.stream.length / 2,
    "records");
  check(reader.closed, true, "the end of a stream");
  const pinging = new Writer(key);
  for (let record = 1; record < 1024; record++) pinging.ping();
  check(concat([pinging.ping(), pinging.ping()]), records["1024th and 1025th PING"], "a key's replacement");
}

function roundOf(vector: Map): Round {
  return new Round(unhex(vector.configuration), readTask(unhex(vector.task)), unhex(vector.task));
}

function clientOf(vectors: Map): Public {
  const { name, "channel key": channel, "statement key": statement } = vectors;
  return { name, channel: unhex(channel), statement: unhex(statement) };
}

const rowsOf = ({ rows }: Map, block: number): number[] => (Array.isArray(rows[block]) ? rows[block] : rows);

function forestryOf(vector: Map, round: Round): Forestry {
  const places = vector.positions.map((forest: Map[]) => forest.map((one) => ({ ...one, row: one.row ?? -1 })));
  return plant(round, vector.client, places, vector["master seeds"].map(unhex));
}

function runRound(vector: Map, client: Map, check: Check): void {
  const round = roundOf(vector), forestry = forestryOf(vector, round), { submission, retrieval } = vector;
  check(round.id, vector["round id"], "a round's digest");
  check(round.expandKey(), vector.keys.expand, "the key of trees");
  check(round.selectKey(), vector.keys.select, "the key of selections");
  for (const [name, server] of Object.entries(vector.carriers)) check(round.carrier(name), server, `the carrier of ${name}`);
  const forests = round.sparse.flatMap((block) => block.forests);
  forests.forEach(({ leaves, positions, depth, trees }, at) => {
    const { leaves: a, positions: b, depth: c, trees: d } = vector.forests[at];
    check([leaves, positions, depth, trees], [a, b, c, d], "a forest");
  });
  check(forestry.commitments.map(hex), vector.commitments, "commitments");
  forestry.planted.forEach(({ nodes }, at) => nodes.forEach((side, server) =>
    check(bytesOf(side), vector.positions[at].map((one: Map) => one["leaves of S0 and S1"][server]).join(""), "leaves")));
  check(forestry.digest, vector["tree digest"], "the digest of trees");
  const retrieved = retrievalPart(forestry);
  check(retrieved.part, retrieval.part, "a retrieval");
  check(retrieved.digest, retrieval.digest, "a retrieval's digest");
  const opened = openAnswers(round, forestry, retrieval.answers.map(unhex));
  const values: Updates = { sparse: {}, dense: {} };
  round.sparse.forEach(({ name, width }, at) => {
    const rows = rowsOf(vector, at), of = round.sparse.length > 1 ? submission.values[at] : submission.values;
    const model = unhex(vector.model[name]), size = model.length / round.sparse[at].rows;
    for (const row of rows) check(opened[name].get(row), hex(model.slice(row * size, (row + 1) * size)), `row ${row}`);
    values.sparse[name] = new globalThis.Map(rows.map((row: number, place: number) => [row, of[place].slice(0, width)]));
  });
  for (const { name } of round.dense) values.dense[name] = submission["values of the dense block"];
  const salt = unhex(submission.part).slice(0, 16), made = submit(round, clientOf(client), forestry, 1, values, salt);
  check(made.bulk, submission.part + submission["dense share"], "a submission");
  check(made.fields.public_digest, submission.digest, "a submission's public digest");
  check(made.digest, submission["submission digest"], "a submission's digest");
}

function runStatements(vectors: Map, check: Check): void {
  const { statements, verified } = vectors, task = readTask(unhex(verified.task));
  const server = { name: "S0", channel: NOTHING, statement: unhex(statements["server's statement key"]) };
  const awaited = { client: statements.name, round_id: unhex(statements["round id"]), task };
  const told = readStatement(unhex(statements.statement), unhex(statements["statement's signature"]), server, awaited);
  check(told.ending.type, "done", "a statement");
  const digest = unhex(statements["submission digest"]);
  checkReceipt({ digest, signature: unhex(statements.receipt) }, digest, server);
  const { channel, statement } = clientOf(statements);
  check(H("fsl.identity", utf8(statements.name), channel, statement), statements["identity digest"], "an identity");
}

/** What a client reads and must refuse; returns how many cases were refused. Throws at the first that was not. */
export function runRefusals(vectors: Map, cases: Map[]): number {
  const vector = vectors.verified, round = roundOf(vector), task = unhex(vector.task);
  const servers = (round.config.servers as Map[]).map(({ channel, statement }, number) =>
    ({ number, name: `S${number}`, address: "", channel, statement }));
  const known = (config: string) => {
    const { number, id } = new Round(unhex(config), readTask(task), task);
    return { number, id };
  };
  const announce = ({ config, after, drawn = true, strange = false, ...rest }: Map) => {
    const head = { config: unhex(config), drawn, strange };
    const one = announced(head, after, rest.known ? known(rest.known) : null, task, servers);
    if (strange) together([one, one], [head, { ...head, strange: false }]);
  };
  const statement = ({ round_id, bytes, signature }: Map, server = servers[0]) =>
    readStatement(unhex(bytes), unhex(signature), server, { client: "alice", round_id: unhex(round_id), task: round.task });
  const readers: Record<string, (one: Map) => unknown> = {
    "preamble, as a dialler": ({ bytes }) => checkPreamble(unhex(bytes), 0),
    "message 2": ({ messages }) => handshake(vectors).second(unhex(messages[0])),
    "the first record": ({ plaintext }) => checkWelcome(unhex(plaintext)),
    records: (one) => readRecords(vectors.records.key, one),
    "a server's message": ({ bytes, zeros = 0 }) => readReply(concat([unhex(bytes), new Uint8Array(zeros)])),
    "an announcement": announce,
    "both announcements": ({ configs, drawn }) => together(
      configs.map((config: string) => new Round(unhex(config), readTask(task), task)),
      drawn.map((each: boolean) => ({ drawn: each, strange: false })),
    ),
    answers: ({ answers }) => openAnswers(round, forestryOf(vector, round), answers.map(unhex)),
    "a reply to query 1": ({ bytes }) => refuse(expect(readReply(unhex(bytes)), "answer", "S0").head.query === 1, "query"),
    "a block": ({ bytes }) => checkBlock([unhex(bytes)], "head", round.dense[0].dtype, round.dense[0].digest, 3),
    "a receipt": ({ bytes, submission }) => checkReceipt(readReply(unhex(bytes)).head, unhex(submission), servers[0]),
    "a statement": statement,
    "both statements": ({ round_id, statements, signatures, submission }) => agreed(
      statements.map((bytes: string, at: number) => statement({ round_id, bytes, signature: signatures[at] }, servers[at])),
      statements.map(unhex), unhex(submission)),
    "a task": ({ bytes }) => readTask(unhex(bytes)),
  };
  let count = 0;
  for (const one of cases.filter(({ reads }) => Object.hasOwn(readers, reads))) {
    let refused = false;
    try {
      readers[one.reads](one);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refused = true;
    }
    if (!refused && one.does !== "may accept") throw new Error(`${one.rule}, ${one.case}: this was not refused`);
    count += +refused;
  }
  return count;
}

function handshake({ noise, preamble }: Map): Handshake {
  const key = x25519.getPublicKey(unhex(noise["server private"])) as Bytes;
  const begun = new Handshake(unhex(preamble.prologue), key, unhex(noise["client private"]), unhex(noise["ephemeral private"][0]));
  begun.first();
  return begun;
}

function readRecords(key: string, { plaintexts, stream }: Map): void {
  const reader = new Reader(unhex(key)), writer = new Writer(unhex(key));
  reader.feed(stream ? unhex(stream) : concat(plaintexts.map((one: Map) =>
    writer.record(concat([unhex(one.bytes), new Uint8Array(one["then zeros"])])))));
  refuse(reader.closed, "a stream that was cut");
}
