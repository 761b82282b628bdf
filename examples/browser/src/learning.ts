/** Words as rows, and one step of softmax regression: a row has a weight of its word for each topic. */
import { blake2b } from "@noble/hashes/blake2.js";
import { utf8 } from "./bytes.js";

export const wordsOf = (text: string) => [...new Set(text.toLowerCase().match(/[\p{L}\p{N}']+/gu) ?? [])];

/** The row of a word: its place in the vocabulary, or, where there is none, a hash of it. Null if it is not in it. */
export function rowOf(word: string, rows: number, vocabulary?: string[]): number | null {
  if (vocabulary) return vocabulary.includes(word) ? vocabulary.indexOf(word) : null;
  return Number(new DataView(blake2b(utf8(word), { dkLen: 8 }).slice().buffer).getBigUint64(0, true) % BigInt(rows));
}

/** How much a model believes in each topic, from the rows of a text's words. */
export function beliefs(rows: number[][], topics: number): number[] {
  const sums = Array.from({ length: topics }, (_, topic) => rows.reduce((sum, row) => sum + (row[topic] ?? 0), 0));
  const most = Math.max(...sums), weights = sums.map((sum) => Math.exp(sum - most));
  return weights.map((weight) => weight / weights.reduce((sum, each) => sum + each, 0));
}

/** What a step adds to each row of the text, in multiples of `unit`. */
export function step(rows: number[][], topic: number, topics: number, unit: number): number[] {
  const rate = 2 / Math.max(1, rows.length);
  return beliefs(rows, topics).slice(0, rows[0]?.length)
    .map((belief, at) => Math.round((rate * (+(at === topic) - belief)) / unit) * unit);
}
