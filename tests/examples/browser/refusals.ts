/** What a client reads of docs/wire-refusals.json, and must refuse: how many it refused, or the first it did not. */
import { x25519 } from "../../../examples/browser/node_modules/@noble/curves/ed25519.js";
import { type Bytes, Refusal, concat, refuse, unhex } from "../../../examples/browser/src/bytes.ts";
import { type Fields, expect, readReply } from "../../../examples/browser/src/messages.ts";
import { Handshake, Reader, Writer, checkPreamble, checkWelcome } from "../../../examples/browser/src/noise.ts";
import { announced, checkBlock, together } from "../../../examples/browser/src/participant.ts";
import { Round, readTask } from "../../../examples/browser/src/round.ts";
import { agreed, readStatement } from "../../../examples/browser/src/statement.ts";
import { checkReceipt } from "../../../examples/browser/src/submission.ts";
import { openAnswers } from "../../../examples/browser/src/trees.ts";
import { forestryOf, roundOf } from "../../../examples/browser/src/vectors.ts";

export function runRefusals(vectors: Fields, cases: Fields[]): number {
  const vector = vectors.verified, round = roundOf(vector), task = unhex(vector.task);
  const keys: Fields[] = round.config.servers;
  const servers = keys.map(({ channel, statement }, at) => ({ name: `S${at}`, channel, statement }));
  const read = (config: string) => new Round(unhex(config), readTask(task), task);
  const announce = ({ config, after, drawn = true, strange = false, known }: Fields) => {
    const head = { config: unhex(config), drawn, strange };
    const one = announced(head, after, known ? read(known) : null, task, servers);
    if (strange) together([one, one], [head, { ...head, strange: false }]);
  };
  const statement = ({ round_id, bytes, signature }: Fields, server = servers[0]) =>
    readStatement(unhex(bytes), unhex(signature), server, "alice", unhex(round_id), round.task);
  const readers: Record<string, (one: Fields) => unknown> = {
    "preamble, as a dialler": ({ bytes }) => checkPreamble(unhex(bytes), 0),
    "message 2": ({ messages }) => handshake(vectors).second(unhex(messages[0])),
    "the first record": ({ plaintext }) => checkWelcome(unhex(plaintext)),
    records: (one) => readRecords(vectors.records.key, one),
    "a server's message": ({ bytes, zeros = 0 }) => readReply(concat([unhex(bytes), new Uint8Array(zeros)])),
    "an announcement": announce,
    "both announcements": ({ configs, drawn }) => together(
      configs.map(read), drawn.map((each: boolean) => ({ drawn: each, strange: false }))),
    answers: ({ answers }) => openAnswers(round, forestryOf(vector, round), answers.map(unhex)),
    "a reply to query 1": ({ bytes }) =>
      refuse(expect(readReply(unhex(bytes)), "answer", "S0").head.query === 1, "an answer to another query"),
    "a block": ({ bytes }) => checkBlock(unhex(bytes), "head", round.dense[0].dtype, round.dense[0].digest, 3),
    "a receipt": ({ bytes, submission }) => checkReceipt(readReply(unhex(bytes)).head, unhex(submission), servers[0]),
    "a statement": statement,
    "both statements": ({ round_id, statements, signatures, submission }) => agreed(
      statements.map((bytes: string, at: number) =>
        statement({ round_id, bytes, signature: signatures[at] }, servers[at])),
      statements.map(unhex), unhex(submission)),
  };
  let count = 0;
  for (const one of cases.filter(({ reads }) => Object.hasOwn(readers, reads))) {
    try {
      readers[one.reads](one);
      if (one.does !== "may accept") throw new Error(`${one.rule}, ${one.case}: this was not refused`);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      count++;
    }
  }
  return count;
}

function handshake({ noise, preamble }: Fields): Handshake {
  const key = x25519.getPublicKey(unhex(noise["server private"])) as Bytes;
  const [ephemeral] = noise["ephemeral private"].map(unhex);
  const begun = new Handshake(unhex(preamble.prologue), key, unhex(noise["client private"]), ephemeral);
  begun.first();
  return begun;
}

function readRecords(key: string, { plaintexts, stream }: Fields): void {
  const reader = new Reader(unhex(key)), writer = new Writer(unhex(key));
  reader.feed(stream ? unhex(stream) : concat(plaintexts.map((one: Fields) =>
    writer.record(concat([unhex(one.bytes), new Uint8Array(one["then zeros"])])))));
  refuse(reader.closed, "a stream that was cut");
}
