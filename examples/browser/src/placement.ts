/** Where rows stand: a keyed permutation for each of three segments, and a tree for each wanted row. */
import { shake256 } from "@noble/hashes/sha3.js";
import { type Bytes, concat, utf8, words } from "./bytes.js";

const SEGMENTS = [0, 1, 2];

/** The permutations of one block, under a key. */
export class Placement {
  private readonly high: number;
  private readonly low: number;
  private readonly tables: Uint16Array[];

  constructor(key: Bytes, private readonly rows: number) {
    const bits = bitsOf(rows);
    [this.high, this.low] = [2 ** Math.floor(bits / 2), 2 ** Math.ceil(bits / 2)];
    this.tables = SEGMENTS.map((segment) => {
      const seed = concat([utf8("fsl-async permutation rounds v1"), Uint8Array.of(segment), key]);
      return new Uint16Array(words(shake256(seed, { dkLen: 16 * this.low }) as Bytes).buffer);
    });
  }

  /** P_s(row). */
  permuted(segment: number, row: number): number {
    const table = this.tables[segment], size = this.low;
    let value = row;
    do {
      let high = Math.floor(value / size), low = value % size;
      for (let round = 0; round < 8; round += 2) {
        high ^= table[round * size + low] & (this.high - 1);
        low ^= table[(round + 1) * size + high] & (size - 1);
      }
      value = high * size + low;
    } while (value >= this.rows);
    return value;
  }

  /** A row for each tree that gets one, by augmenting paths, and the rows for which there is none. */
  place(rows: readonly number[], bins: number, positions: number): { byTree: Map<number, number>; left: number[] } {
    const byTree = new Map<number, number>();
    const augment = (row: number, seen: Set<number>): boolean => SEGMENTS.some((segment) => {
      const bin = Math.floor(this.permuted(segment, row) / positions) % bins;
      const tree = segment * bins + bin, sits = byTree.get(tree);
      if (seen.has(tree)) return false;
      seen.add(tree);
      return (sits === undefined || augment(sits, seen)) && !!byTree.set(tree, row);
    });
    return { byTree, left: rows.filter((row) => !augment(row, new Set())) };
  }
}

/** ⌈log₂ n⌉. */
export function bitsOf(number: number): number {
  let bits = 0;
  while (2 ** bits < number) bits++;
  return bits;
}
