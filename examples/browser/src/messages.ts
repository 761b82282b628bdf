/** Messages: one head of MessagePack in its one encoding, then bulk. */
import { decodeMulti, encode } from "@msgpack/msgpack";
import { type Bytes, refuse, same, utf8 } from "./bytes.js";

export type Fields = Record<string, any>;
export const pack = (value: unknown): Bytes => encode(value) as Bytes;

/** What a value of a field has to be. */
export type Check = (value: any) => boolean;
export const bin = (...sizes: number[]): Check => (value) =>
  value instanceof Uint8Array && (!sizes.length || sizes.includes(value.length));
export const whole: Check = (value) => Number.isSafeInteger(value) && value >= 0;
export const text: Check = (value) => typeof value === "string";
export const truth: Check = (value) => typeof value === "boolean";
export const oneOf = (...all: unknown[]): Check => (value) => all.includes(value);
export const either = (...all: Check[]): Check => (value) => all.some((check) => check(value));
export const list = (of: Check): Check => (value) => Array.isArray(value) && value.every((each) => of(each));
export const isMap: Check = (value) => Object.getPrototypeOf(value ?? 0) === Object.prototype;
export const map = (fields: Record<string, Check>): Check => (value) =>
  isMap(value) && Object.keys(value).join() === Object.keys(fields).join() &&
  Object.keys(fields).every((name) => fields[name](value[name]));

const REASONS = oneOf("round-closed", "no-session", "conflict", "limit", "malformed", "not-drawn", "busy");
const REPLIES: Record<string, Record<string, Check>> = {
  "task-is": { task: bin() },
  opened: { config: bin(), strange: truth, drawn: truth },
  answer: { round_id: bin(32), query: whole },
  block: { round_id: bin(32), block: text },
  receipt: { round_id: bin(32), digest: bin(32), signature: bin(64) },
  finished: { round_id: bin(32), signature: bin(64) },
  refused: { reason: REASONS, explanation: (value) => text(value) && utf8(value).length <= 256, retry_after: whole },
};
const WITH_BULK = ["answer", "block", "finished"];

export interface Reply { head: Fields; bulk: Bytes }

/** The first value in bytes, and the bytes behind it; refused if it is not in its shortest form, unless it may be. */
export function unpack(bytes: Bytes, loosely = false): [value: any, rest: Bytes] {
  let value: unknown, again: Bytes;
  try {
    value = decodeMulti(bytes).next().value;
    again = pack(value);
  } catch (error) {
    refuse(false, `no MessagePack: ${(error as Error).message}`);
  }
  refuse(loosely || same(again, bytes.subarray(0, again.length)), "MessagePack that is not in its shortest form");
  return [value, bytes.slice(again.length)];
}

/** Read a server's message. */
export function readReply(message: Bytes): Reply {
  const [head, bulk] = unpack(message);
  refuse(isMap(head) && Object.hasOwn(REPLIES, head.type), "a head of no known type");
  refuse(map({ type: text, ...REPLIES[head.type] })(head), `${head.type} with other fields than it has`);
  refuse(message.length - bulk.length <= 65536, "a head that is too long");
  refuse(WITH_BULK.includes(head.type) || !bulk.length, `bytes behind ${head.type}`);
  return { head, bulk };
}

/** A reply that is of that kind, or `refused`. */
export function expect(reply: Reply, kind: string, server: string): Reply {
  refuse([kind, "refused"].includes(reply.head.type), `${server} replied ${reply.head.type} where ${kind} is due`);
  return reply;
}
