/** Where rows stand: a keyed permutation for each of three segments, and a place in a bin for each wanted row. */
import { shake256 } from "@noble/hashes/sha3.js";
import { type Bytes, concat, utf8 } from "./bytes.js";

const SEGMENTS = [0, 1, 2];

/** The permutations of one block, under a key. */
export class Placement {
  private readonly high: number;
  private readonly low: number;
  private readonly tables: Uint16Array[][];

  constructor(key: Bytes, private readonly rows: number) {
    let bits = 0;
    while (2 ** bits < rows) bits++;
    this.high = Math.floor(bits / 2);
    this.low = bits - this.high;
    const size = 2 ** this.low;
    this.tables = SEGMENTS.map((segment) => {
      const seed = concat([utf8("fsl-async permutation rounds v1"), Uint8Array.of(segment), key]);
      const numbers = new Uint16Array((shake256(seed, { dkLen: 16 * size }) as Bytes).slice().buffer);
      return Array.from({ length: 8 }, (_, round) => numbers.subarray(round * size, (round + 1) * size));
    });
  }

  /** P_s(row). */
  permuted(segment: number, row: number): number {
    const table = this.tables[segment], size = 2 ** this.low;
    const highMask = 2 ** this.high - 1, lowMask = size - 1;
    let value = row;
    do {
      let high = Math.floor(value / size), low = value % size;
      for (let round = 0; round < 8; round += 2) {
        high ^= table[round][low] & highMask;
        low ^= table[round + 1][high] & lowMask;
      }
      value = high * size + low;
    } while (value >= this.rows);
    return value;
  }

  /** A tree of `3 · bins` for each row, by augmenting paths; rows for which there is none go to stash slots or nowhere. */
  place(rows: readonly number[], bins: number, positions: number): { byTree: globalThis.Map<number, number>; left: number[] } {
    const byTree = new globalThis.Map<number, number>();
    const choices = (row: number) =>
      SEGMENTS.map((segment) => segment * bins + (Math.floor(this.permuted(segment, row) / positions) % bins));
    const augment = (row: number, seen: Set<number>): boolean =>
      choices(row).some((tree) => {
        if (seen.has(tree)) return false;
        seen.add(tree);
        const sits = byTree.get(tree);
        if (sits !== undefined && !augment(sits, seen)) return false;
        byTree.set(tree, row);
        return true;
      });
    return { byTree, left: rows.filter((row) => !augment(row, new Set())) };
  }
}
