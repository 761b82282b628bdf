/** Public parts and shares: what a retrieval and a submission carry, and the receipts for them. */
import { ed25519 } from "@noble/curves/ed25519.js";
import { keyStream } from "./aes.js";
import { type Bytes, H, NOTHING, bytesOf, concat, keyedH, le, refuse, same, utf8, words } from "./bytes.js";
import type { Fields } from "./messages.js";
import type { Round } from "./round.js";
import { type Forestry, hints, proofs, subtract } from "./trees.js";

/** A name with two keys: a client's own are secret, and `Public` are the halves that others know. */
export interface Keys { name: string; channel: Bytes; statement: Bytes }

export type Public = Keys;

/** Values of sparse blocks by row, and of dense blocks in order; blocks that are left out get zeros. */
export interface Updates { sparse: Record<string, Map<number, number[]>>; dense: Record<string, number[]> }

/** What is sent: `fields` are those of both servers' heads, but for the seed, which is each one's own. */
export interface Submission { digest: Bytes; fields: Fields; seeds: Bytes[]; bulk: Bytes; carrier: number }

export function retrievalPart({ planted, digest }: Forestry): { part: Bytes; digest: Bytes } {
  const part = concat(planted.flatMap(({ tree, select }) => [tree, select]));
  return { part, digest: H("fsl.public", digest, ...planted.map(({ select }) => select)) };
}

/** The nearest whole number, ties to even. */
function nearest(number: number): number {
  const below = Math.floor(number), rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** Numbers as elements of the ring. */
export function elements(task: Fields, numbers: readonly number[]): Bytes {
  const { bits, fraction_bits } = task.ring, size = bits / 8, all = new Uint8Array(numbers.length * size);
  const largest = task.largest ?? 2 ** (bits - 1 - fraction_bits) * (1 - 2 ** -52);
  numbers.forEach((number, at) => {
    refuse(Math.abs(number) <= largest, `${number} is larger than ${largest}, the largest number of the task`);
    let element = BigInt.asUintN(bits, BigInt(nearest(number * 2 ** fraction_bits)));
    for (let byte = 0; byte < size; byte++, element >>= 8n) all[at * size + byte] = Number(element & 255n);
  });
  return all;
}

/** A submission on trees: those of retrieval number `query`, or, where that is 0, its own. */
export function submit(round: Round, { name, channel, statement }: Public, trees: Forestry, query: number,
  updates: Updates, salt: Bytes): Submission {
  const { planted, seeds, commitments } = trees, carrier = round.carrier(name), size = round.bits / 8;
  const pieces = planted.map((one) => {
    const { forest, places } = one, block = round.sparse[forest.block], { width } = block;
    const row = (forest.positions * width + forest.counts) * size, payloads = new Uint8Array(row * forest.trees);
    places.forEach((place, tree) => {
      const values = updates.sparse[block.name]?.get(place.row);
      if (values) payloads.set(elements(round.task, values), tree * row + place.slot * width * size);
      if (forest.counts) payloads.set(le(1, size), (tree + 1) * row - size);
    });
    const tree = query ? NOTHING : one.tree;
    return [tree, hints(round, one, payloads, row, salt), proofs(round, name, trees, one)];
  });
  const values = round.dense.flatMap(({ name, size }) => updates.dense[name] ?? new Array<number>(size).fill(0));
  const mask = keyedH(seeds[1 - carrier], "fsl.dense-mask", le(round.number, 8), salt).slice(0, 16);
  const open = words(elements(round.task, values));
  const share = bytesOf(subtract(open, words(keyStream(mask, 4 * open.length)), round.bits / 32));
  const last = round.dense.length ? keyedH(seeds[carrier], "fsl.dense-share", share) : NOTHING;
  const others = pieces.flatMap(([, ...rest]) => rest);
  const public_digest = H("fsl.public", query ? NOTHING : trees.digest, salt, ...others, last);
  const identity = H("fsl.identity", utf8(name), channel, statement);
  const bind = H("fsl.binding", round.id, identity, public_digest, trees.digest, ...commitments);
  return {
    digest: H("fsl.submission", bind, NOTHING),
    fields: { round_id: round.id, query, seed: NOTHING, commitments, public_digest, bound_digest: NOTHING },
    bulk: concat([salt, ...pieces.flat(), last, share]),
    seeds,
    carrier,
  };
}

/** Whether a server has signed H(tag, what). */
export function signed(signature: Bytes, key: Bytes, tag: string, what: Bytes): boolean {
  return ed25519.verify(signature, H(tag, what), key, { zip215: false });
}

/** Refuse a receipt that is not for this submission, or not signed by this server. */
export function checkReceipt(head: Fields, submission: Bytes, server: Public): void {
  refuse(same(head.digest, submission), `a receipt of ${server.name} for another submission`);
  refuse(signed(head.signature, server.statement, "fsl.receipt", submission), `${server.name} signed no such receipt`);
}
