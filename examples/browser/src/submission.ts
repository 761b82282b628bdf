/** Public parts and shares: what a retrieval and a submission carry. */
import { ed25519 } from "@noble/curves/ed25519.js";
import { keyStream } from "./aes.js";
import { type Bytes, H, NOTHING, bytesOf, concat, keyedH, le, refuse, same, utf8, words } from "./bytes.js";
import { type Map } from "./messages.js";
import type { Round } from "./round.js";
import { type Forestry, hints, proofs, subtract } from "./trees.js";

export interface Keys {
  name: string;
  channel: Bytes;
  statement: Bytes;
}

export interface Public {
  name: string;
  channel: Bytes;
  statement: Bytes;
}

export interface Part {
  part: Bytes;
  digest: Bytes;
}

/** Values of sparse blocks by row, and of dense blocks in order; blocks that are left out get zeros. */
export interface Updates {
  sparse: Record<string, globalThis.Map<number, number[]>>;
  dense: Record<string, number[]>;
}

export interface Submission {
  digest: Bytes;
  /** What both servers' heads have; the seed is each one's own. */
  fields: Map;
  seeds: Bytes[];
  bulk: Bytes;
  carrier: number;
}

export function retrievalPart({ planted, digest }: Forestry): Part {
  return {
    part: concat(planted.flatMap(({ tree, select }) => [tree, select])),
    digest: H("fsl.public", digest, ...planted.map(({ select }) => select)),
  };
}

/** Numbers as elements of the ring: the nearest, ties to even. */
export function elements(task: Map, numbers: readonly number[]): Bytes {
  const { bits, fraction_bits } = task.ring, size = bits / 8, all = new Uint8Array(numbers.length * size);
  const largest = task.largest ?? 2 ** (bits - 1 - fraction_bits) * (1 - 2 ** -52);
  numbers.forEach((number, at) => {
    refuse(Math.abs(number) <= largest, `${number} is larger than ${largest}, the largest number of the task`);
    let element = BigInt.asUintN(bits, BigInt(nearest(number * 2 ** fraction_bits)));
    for (let byte = 0; byte < size && element; byte++, element >>= 8n) all[at * size + byte] = Number(element & 255n);
  });
  return all;
}

export function nearest(number: number): number {
  const below = Math.floor(number), rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** A submission on trees: those of retrieval number `query`, or, where that is 0, its own. */
export function submit(round: Round, client: Public, forestry: Forestry, query: number, updates: Updates, salt: Bytes): Submission {
  const { planted, seeds, commitments } = forestry, own = query === 0;
  const carrier = round.carrier(client.name), size = round.bits / 8;
  const pieces = planted.map((one) => {
    const { forest, rows, slots } = one, { name, width } = round.sparse[forest.block];
    const row = (forest.positions * width + forest.counts) * size;
    const payloads = new Uint8Array(row * forest.trees);
    rows.forEach((number, tree) => {
      const values = updates.sparse[name]?.get(number);
      if (number >= 0 && values) payloads.set(elements(round.task, values), tree * row + slots[tree] * width * size);
      if (forest.counts) payloads.set(le(1, size), (tree + 1) * row - size);
    });
    return { tree: one.tree, hint: hints(round, one, payloads, row, salt), proof: proofs(round, client.name, forestry, one) };
  });
  const values = round.dense.flatMap(({ name, size }) => updates.dense[name] ?? new Array<number>(size).fill(0));
  const share = masked(round, elements(round.task, values), seeds[1 - carrier], salt);
  const last = round.dense.length ? keyedH(seeds[carrier], "fsl.dense-share", share) : NOTHING;
  const others = [salt, ...pieces.flatMap(({ hint, proof }) => [hint, proof]), last];
  const trees = pieces.flatMap(({ tree, hint, proof }) => [own ? tree : NOTHING, hint, proof]);
  const digest = H("fsl.public", own ? forestry.digest : NOTHING, ...others);
  return {
    digest: submissionDigest(round, client, digest, forestry),
    fields: { round_id: round.id, query, seed: NOTHING, commitments, public_digest: digest, bound_digest: NOTHING },
    seeds,
    bulk: concat([salt, ...trees, last, share]),
    carrier,
  };
}

function masked(round: Round, values: Bytes, seed: Bytes, salt: Bytes): Bytes {
  const key = keyedH(seed, "fsl.dense-mask", le(round.number, 8), salt).slice(0, 16);
  return bytesOf(subtract(words(values), words(keyStream(key, values.length)), round.bits / 32));
}

function submissionDigest(round: Round, { name, channel, statement }: Public, part: Bytes, trees: Forestry): Bytes {
  const identity = H("fsl.identity", utf8(name), channel, statement);
  const bind = H("fsl.binding", round.id, identity, part, trees.digest, ...trees.commitments);
  return H("fsl.submission", bind, NOTHING);
}

export function signed(signature: Bytes, key: Bytes, tag: string, what: Bytes): boolean {
  return ed25519.verify(signature, H(tag, what), key, { zip215: false });
}

/** Refuse a receipt that is not for this submission, or not signed by this server. */
export function checkReceipt(head: Map, submission: Bytes, server: Public): void {
  refuse(same(head.digest, submission), `a receipt of ${server.name} for another submission`);
  refuse(signed(head.signature, server.statement, "fsl.receipt", submission), `a receipt that ${server.name} did not sign`);
}
