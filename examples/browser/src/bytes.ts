/** Bytes, numbers in them, and the digests of docs/wire/client.md. */
import { blake2b } from "@noble/hashes/blake2.js";
import { blake3 } from "@noble/hashes/blake3.js";

export type Bytes = Uint8Array<ArrayBuffer>;

/** What the page takes from somebody else and does not accept: it gives up what it was doing, and says this. */
export class Refusal extends Error {}

export function refuse(unless: unknown, why: string): asserts unless {
  if (!unless) throw new Refusal(why);
}

export const NOTHING: Bytes = new Uint8Array(0);
export const utf8 = (text: string): Bytes => new TextEncoder().encode(text);
export const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const words = (bytes: Bytes) => new Uint32Array(bytes.slice().buffer);
export const bytesOf = (all: Uint32Array<ArrayBuffer>): Bytes => new Uint8Array(all.slice().buffer);

export function unhex(text: string): Bytes {
  refuse(/^([0-9a-f]{2})*$/.test(text), `hexadecimal digits expected, not ${text.slice(0, 40)}`);
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function concat(parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  parts.reduce((at, part) => (joined.set(part, at), at + part.length), 0);
  return joined;
}

/** Whether bytes are equal; how long it takes depends on their lengths alone. */
export function same(one: Uint8Array, other: Uint8Array): boolean {
  return one.reduce((difference, byte, at) => difference | (byte ^ other[at]), one.length ^ other.length) === 0;
}

/** A whole number of at most 2^53, lowest byte first; `be`: highest byte first. */
export const le = (number: number, size: number): Bytes =>
  Uint8Array.from({ length: size }, (_, at) => Math.floor(number / 256 ** at) % 256);
export const be = (number: number, size: number): Bytes => le(number, size).reverse();
export const fromBe = (bytes: Uint8Array) => bytes.reduce((number, byte) => number * 256 + byte, 0);

export const random = (size: number): Bytes => crypto.getRandomValues(new Uint8Array(size));

/** A whole number from 0 to below `limit`, which is at most 2^32, each as likely as the others. */
export function randomBelow(limit: number): number {
  const drawn = words(random(4))[0];
  return drawn < 2 ** 32 - (2 ** 32 % limit) ? drawn % limit : randomBelow(limit);
}

/** H(key; tag, parts…): a digest of 32 bytes. Without a key, H(tag, parts…); K is a key of 16 bytes. */
export function keyedH(key: Uint8Array, tag: string, ...parts: Uint8Array[]): Bytes {
  const personalization = concat([utf8(tag), new Uint8Array(16 - tag.length)]);
  const hash = blake2b.create({ dkLen: 32, personalization, ...(key.length ? { key } : {}) });
  for (const part of parts) hash.update(le(part.length, 8)).update(part.length > 1024 ? blake3(part) : part);
  return hash.digest() as Bytes;
}

export const H = (tag: string, ...parts: Uint8Array[]) => keyedH(NOTHING, tag, ...parts);
export const K = (tag: string, ...parts: Uint8Array[]) => H(tag, ...parts).slice(0, 16);
