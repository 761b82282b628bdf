/** Point functions as trees, and what hangs on their leaves: "Trees, hints and proofs". */
import { type Blocks, encrypt, hash, xor } from "./aes.js";
import { type Bytes, H, K, bytesOf, concat, randomBelow, refuse, same, utf8, words } from "./bytes.js";
import { type Forest, type Round, sizeOf } from "./round.js";

/** The trees of one forest; -1 stands for a tree in which the client has no row. */
export interface Planted {
  forest: Forest;
  rows: number[];
  leaves: number[];
  slots: number[];
  tree: Bytes;
  select: Bytes;
  /** Both servers' leaf blocks at these leaves. */
  nodes: [Blocks, Blocks];
}

/** All trees of a round. */
export interface Forestry {
  planted: Planted[];
  seeds: Bytes[];
  commitments: Bytes[];
  digest: Bytes;
}

/** Where one tree is planted; the row is -1 where the client has none. */
export interface Place {
  row: number;
  leaf: number;
  slot: number;
}

/** A place for each tree of each forest: at a row, or where only chance, or a count, says. */
export function settle(round: Round, rows: Record<string, number[]>): Place[][] {
  return round.sparse.flatMap((block) => {
    const wanted = rows[block.name] ?? [], [bins] = block.forests;
    refuse(wanted.length <= block.select, `${wanted.length} rows of ${block.name}: the task selects ${block.select}`);
    const { byTree, left } = block.placement.place(wanted, bins.bins, bins.positions);
    refuse(left.length < block.forests.length, `no bin is free for row ${left[0]} of ${block.name}: take another round`);
    return block.forests.map((forest) =>
      Array.from({ length: forest.trees }, (_, tree): Place => {
        const row = forest.number ? left[forest.number - 1] : byTree.get(tree);
        if (row === undefined) return { row: -1, ...nowhere(forest) };
        if (forest.number) return { row, leaf: row, slot: 0 };
        const y = block.placement.permuted(Math.floor(tree / forest.bins), row);
        return { row, leaf: Math.floor(y / (forest.positions * forest.bins)), slot: y % forest.positions };
      }),
    );
  });
}

function nowhere({ leaves, positions, counts }: Forest): { leaf: number; slot: number } {
  return counts ? { leaf: leaves - 1, slot: 0 } : { leaf: randomBelow(leaves), slot: randomBelow(positions) };
}

/** Plant a tree at each place. */
export function plant(round: Round, client: string, places: Place[][], seeds: Bytes[]): Forestry {
  const forests = round.sparse.flatMap((block) => block.forests);
  const planted = forests.map((forest, at): Planted => {
    const leaves = places[at].map(({ leaf }) => leaf), slots = places[at].map(({ slot }) => slot);
    const { tree, nodes } = grow(round, forest, leaves, seeds);
    const rows = places[at].map(({ row }) => row);
    return { forest, rows, leaves, slots, tree, nodes, select: selects(round, forest, nodes, slots) };
  });
  const pieces = planted.map(({ tree }) => tree);
  const digest = pieces.some((piece) => piece.length) ? H("fsl.tree", ...pieces) : new Uint8Array(0);
  return { planted, seeds, commitments: round.commitments(seeds, client), digest };
}

/** Grow the trees of a forest, level after level, both servers' sides of all of them at once. */
function grow(round: Round, forest: Forest, leaves: number[], seeds: Bytes[]): { tree: Bytes; nodes: [Blocks, Blocks] } {
  const { trees, depth } = forest, expand = round.expandKey();
  const places = Uint32Array.from({ length: 4 * trees }, (_, at) => [at >> 2, 0, forest.number, forest.block][at & 3]);
  let nodes = seeds.map((seed, server) => {
    const roots = encrypt(seed, places);
    for (let at = 0; at < roots.length; at += 4) roots[at] = ((roots[at] & ~1) | server) >>> 0;
    return roots;
  }) as [Blocks, Blocks];
  const delta = xor(nodes[0], nodes[1]), levels: Blocks[] = [];
  for (let level = depth - 1; level >= 0; level--) {
    const hashed = nodes.map((side) => hash(expand, side));
    const right = leaves.map((leaf) => -(Math.floor(leaf / 2 ** level) & 1));
    const word = delta.map((part, at) => hashed[0][at] ^ hashed[1][at] ^ (part & ~right[at >> 2]));
    nodes = nodes.map((side, server) =>
      hashed[server].map((part, at) => part ^ (word[at] & -(side[at & ~3] & 1)) ^ (side[at] & right[at >> 2])),
    ) as [Blocks, Blocks];
    levels.push(word);
  }
  return { tree: concat(levels.map(bytesOf)), nodes };
}

function selects(round: Round, forest: Forest, nodes: [Blocks, Blocks], slots: number[]): Bytes {
  const { positions, trees } = forest;
  if (positions === 1) return new Uint8Array(0);
  const key = round.selectKey(), [first, second] = nodes.map((side) => hash(key, side));
  const packed = new Uint8Array(Math.ceil((trees * positions) / 8));
  slots.forEach((slot, tree) => {
    const hint = ((1 << slot) ^ first[4 * tree] ^ second[4 * tree]) & ((1 << positions) - 1);
    for (let bit = 0; bit < positions; bit++) {
      const place = tree * positions + bit;
      packed[place >> 3] |= ((hint >> bit) & 1) << (place & 7);
    }
  });
  return packed;
}

/** The product of two polynomials over GF(2), modulo x^64 + x^4 + x^3 + x + 1, each as its two halves. */
function times(low: number, high: number, otherLow: number, otherHigh: number): [low: number, high: number] {
  let sumLow = 0, sumHigh = 0;
  for (let bit = 63; bit >= 0; bit--) {
    const over = -(sumHigh >>> 31), take = -(((bit < 32 ? otherLow : otherHigh) >>> (bit & 31)) & 1);
    sumHigh = ((sumHigh << 1) | (sumLow >>> 31)) ^ (high & take);
    sumLow = (sumLow << 1) ^ (0x1b & over) ^ (low & take);
  }
  return [sumLow, sumHigh];
}

/** The rows that two answers have, by block: row after row, each its bytes. Refused if a tag does not fit. */
export function openAnswers(round: Round, forestry: Forestry, answers: Bytes[]): Record<string, globalThis.Map<number, Bytes>> {
  const found: Record<string, globalThis.Map<number, Bytes>> = {};
  const sizes = round.sparse.map((block) => sizeOf(block.dtype) * block.width);
  const tags = round.sparse.map((block, index) => new Uint32Array(block.authenticated ? 2 * Math.ceil(sizes[index] / 8) : 0));
  const trees = forestry.planted.reduce((size, { forest }) => size + forest.trees * sizes[forest.block], 0);
  const expected = trees + tags.reduce((size, tag) => size + 4 * tag.length, 0);
  refuse(answers.every(({ length }) => length === expected), `an answer of another size than ${expected} bytes`);
  const both = answers[0].map((byte, at) => byte ^ answers[1][at]);
  let at = 0;
  for (const { forest, rows, nodes } of forestry.planted) {
    const size = sizes[forest.block], tag = tags[forest.block];
    const opened = (found[round.sparse[forest.block].name] ??= new globalThis.Map());
    rows.forEach((row, tree) => {
      const bytes = both.slice(at, (at += size));
      if (row >= 0) opened.set(row, bytes);
      const padded = words(concat([bytes, new Uint8Array(-size & 7)]));
      const [low, high] = [2, 3].map((half) => nodes[0][4 * tree + half] ^ nodes[1][4 * tree + half]);
      for (let word = 0; word < tag.length; word += 2) {
        const [first, second] = times(low, high, padded[word], padded[word + 1]);
        tag[word] ^= first;
        tag[word + 1] ^= second;
      }
    });
  }
  refuse(same(concat(tags.map(bytesOf)), both.subarray(trees)), "a tag of a retrieval does not fit: no row of it is used");
  return found;
}

/** cs of every tree of a forest. */
export function proofs(round: Round, client: string, forestry: Forestry, { leaves, nodes }: Planted): Bytes {
  if (round.task.security !== "verified") return new Uint8Array(0);
  const parts = [round.id, utf8(client), forestry.digest, ...forestry.commitments];
  const [tag, mask] = ["fsl.tag-key", "fsl.tag-mask"].map((name) => K(name, ...parts));
  const numbers = new Uint32Array(4 * leaves.length);
  leaves.forEach((leaf, tree) => numbers.set([leaf, leaf / 2 ** 32], 4 * tree));
  const masks = encrypt(mask, numbers);
  const [first, second] = nodes.map((side) => xor(side, masks)).map((side) => xor(encrypt(tag, side), side));
  return bytesOf(xor(first, second));
}

/** One minus another, element by element of so many 32-bit words, modulo 2 to the bits of an element. */
export function subtract(one: Blocks, other: Blocks, element: number): Blocks {
  let borrow = 0;
  return one.map((word, at) => {
    const rest = word - other[at] - (at % element ? borrow : 0);
    borrow = +(rest < 0);
    return rest;
  });
}

/** The hints of a forest's trees, for payloads of so many bytes each that follow one another. */
export function hints(round: Round, { forest, nodes }: Planted, payloads: Bytes, size: number, salt: Bytes): Bytes {
  const convert = round.convertKey(forest.block, salt), planes = Math.ceil(size / 16), element = round.bits / 32;
  const spread = (side: Blocks) => {
    const inputs = new Uint32Array(4 * planes * forest.trees);
    for (let at = 0; at < inputs.length; at++) {
      const block = at >> 2, plane = block % planes, tree = (block - plane) / planes;
      inputs[at] = side[4 * tree + (at & 3)] ^ (at & 3 ? 0 : 2 * plane);
    }
    return hash(convert, inputs);
  };
  const padded = new Uint8Array(16 * planes * forest.trees);
  for (let tree = 0; tree < forest.trees; tree++) {
    padded.set(payloads.subarray(size * tree, size * (tree + 1)), 16 * planes * tree);
  }
  const [first, second] = nodes.map(spread);
  const opened = subtract(words(padded), subtract(first, second, element), element);
  const signs = opened.map((_, at) => -(nodes[1][4 * Math.floor(at / (4 * planes))] & 1));
  const hint = bytesOf(subtract(xor(opened, signs), signs, element));
  return concat(Array.from({ length: forest.trees }, (_, tree) => hint.subarray(16 * planes * tree, 16 * planes * tree + size)));
}
