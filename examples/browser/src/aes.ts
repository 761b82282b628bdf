/** AES-128 on many blocks (WebCrypto needs a call, and a promise, for each). It looks up tables by secret bytes. */
import { ecb } from "@noble/ciphers/aes.js";
import { type Bytes, bytesOf, words } from "./bytes.js";

/** Blocks of four words each, the lowest first. */
export type Blocks = Uint32Array<ArrayBuffer>;

export const encrypt = (key: Bytes, blocks: Blocks): Blocks =>
  blocks.length ? words(ecb(key, { disablePadding: true }).encrypt(bytesOf(blocks)) as Bytes) : blocks;

export const xor = (one: Blocks, other: Blocks): Blocks => one.map((word, at) => word ^ other[at]);

/** H_K of every block: AES_K(σ(x)) xor σ(x). */
export function hash(key: Bytes, blocks: Blocks): Blocks {
  const sigma = blocks.map((word, at) => (at & 2 ? word ^ blocks[at - 2] : blocks[at + 2]));
  return xor(encrypt(key, sigma), sigma);
}

/** The first bytes of AES_k(0), AES_k(1), … */
export function keyStream(key: Bytes, size: number): Bytes {
  const counters = new Uint32Array(4 * Math.ceil(size / 16));
  for (let at = 0; at < counters.length; at += 4) counters[at] = at / 4;
  return bytesOf(encrypt(key, counters)).slice(0, size);
}
