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

export function unhex(text: string): Bytes {
  refuse(/^([0-9a-f]{2})*$/.test(text), `hexadecimal digits expected, not ${text.slice(0, 40)}`);
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function concat(parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Whether bytes are equal; how long it takes depends on their lengths alone. */
export function same(one: Uint8Array, other: Uint8Array): boolean {
  let difference = one.length ^ other.length;
  for (let at = 0; at < one.length; at++) difference |= one[at] ^ (other[at] ?? 0);
  return difference === 0;
}

/** A whole number of at most 2^53, lowest byte first. */
export function le(number: number, size: number): Bytes {
  const bytes = new Uint8Array(size);
  for (let at = 0, rest = number; rest > 0; at++, rest = Math.floor(rest / 256)) bytes[at] = rest % 256;
  return bytes;
}

export const be = (number: number, size: number): Bytes => le(number, size).reverse();

export function fromBe(bytes: Uint8Array): number {
  return bytes.reduce((number, byte) => number * 256 + byte, 0);
}

export const words = (bytes: Bytes) => new Uint32Array(bytes.slice().buffer);
export const bytesOf = (all: Uint32Array<ArrayBuffer>): Bytes => new Uint8Array(all.buffer, all.byteOffset, all.byteLength);

export const random = (size: number): Bytes => {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) crypto.getRandomValues(bytes.subarray(at, at + 65536));
  return bytes;
};

/** A whole number from 0 to below `limit`, which is at most 2^32. */
export function randomBelow(limit: number): number {
  const fair = Math.floor(2 ** 32 / limit) * limit;
  for (;;) {
    const drawn = words(random(4))[0];
    if (drawn < fair) return drawn % limit;
  }
}

/** H(key; tag, parts…): a digest of 32 bytes. Without a key, H(tag, parts…). */
export function keyedH(key: Uint8Array, tag: string, ...parts: Uint8Array[]): Bytes {
  const personalization = new Uint8Array(16);
  personalization.set(utf8(tag));
  const hash = blake2b.create(key.length ? { dkLen: 32, personalization, key } : { dkLen: 32, personalization });
  for (const part of parts) hash.update(le(part.length, 8)).update(part.length > 1024 ? blake3(part) : part);
  return hash.digest() as Bytes;
}

export const H = (tag: string, ...parts: Uint8Array[]) => keyedH(NOTHING, tag, ...parts);
export const K = (tag: string, ...parts: Uint8Array[]) => H(tag, ...parts).slice(0, 16);
