/** Point functions as trees, and what hangs on their leaves: "Trees, hints and proofs". */
import { type Blocks, encrypt, hash, xor } from "./aes.js";
import { type Bytes, H, K, NOTHING, bytesOf, concat, randomBelow, refuse, same, utf8, words } from "./bytes.js";
import { type Forest, type Round, sizeOf } from "./round.js";

/** Where one tree is planted; the row is -1 where the client has none. */
export interface Place { row: number; leaf: number; slot: number }

/** The trees of one forest; `nodes` are both servers' leaf blocks at the places. */
export interface Planted { forest: Forest; places: Place[]; tree: Bytes; select: Bytes; nodes: [Blocks, Blocks] }

/** All trees of a round. */
export interface Forestry { planted: Planted[]; seeds: Bytes[]; commitments: Bytes[]; digest: Bytes }

/** A place for each tree of each forest: at a row, or where only chance, or a count, says. */
export function settle(round: Round, rows: Record<string, number[]>): Place[][] {
  return round.sparse.flatMap(({ name, select, forests, placement }) => {
    const wanted = rows[name] ?? [], { byTree, left } = placement.place(wanted, forests[0].bins, forests[0].positions);
    refuse(wanted.length <= select, `${wanted.length} rows of ${name}: the task selects ${select}`);
    refuse(left.length < forests.length, `no bin is free for row ${left[0]} of ${name}: take another round`);
    return forests.map(({ number, trees, leaves, positions, counts, bins }) =>
      Array.from({ length: trees }, (_, tree): Place => {
        const row = (number ? left[number - 1] : byTree.get(tree)) ?? -1;
        if (row < 0) return { row, leaf: counts ? leaves - 1 : randomBelow(leaves), slot: randomBelow(positions) };
        const y = number ? row : placement.permuted(Math.floor(tree / bins), row);
        return { row, leaf: Math.floor(y / (positions * bins)), slot: y % positions };
      }));
  });
}

/** Plant a tree at each place. */
export function plant(round: Round, client: string, places: Place[][], seeds: Bytes[]): Forestry {
  const planted = round.sparse.flatMap(({ forests }) => forests).map((forest, at): Planted => {
    const { tree, nodes } = grow(round, forest, places[at], seeds);
    return { forest, places: places[at], tree, nodes, select: selects(round, forest, nodes, places[at]) };
  });
  const pieces = planted.map(({ tree }) => tree);
  const digest = pieces.some((piece) => piece.length) ? H("fsl.tree", ...pieces) : NOTHING;
  return { planted, seeds, commitments: round.commitments(seeds, client), digest };
}

/** Grow the trees of a forest, level after level, both servers' sides of all of them at once. */
function grow(round: Round, forest: Forest, places: Place[], seeds: Bytes[]): Pick<Planted, "tree" | "nodes"> {
  const key = round.expandKey(), numbers = words(concat(places.map((_, tree) => bytesOf(Uint32Array.of(tree, 0,
    forest.number, forest.block)))));
  let nodes = seeds.map((seed, server) =>
    encrypt(seed, numbers).map((word, at) => (at & 3 ? word : (word & ~1) | server))) as [Blocks, Blocks];
  const delta = xor(nodes[0], nodes[1]), levels: Bytes[] = [];
  for (let level = forest.depth - 1; level >= 0; level--) {
    const [first, second] = nodes.map((side) => hash(key, side));
    const right = places.map(({ leaf }) => -(Math.floor(leaf / 2 ** level) & 1));
    const word = delta.map((part, at) => first[at] ^ second[at] ^ (part & ~right[at >> 2]));
    nodes = nodes.map((side, server) => [first, second][server].map((part, at) =>
      part ^ (word[at] & -(side[at & ~3] & 1)) ^ (side[at] & right[at >> 2]))) as [Blocks, Blocks];
    levels.push(bytesOf(word));
  }
  return { tree: concat(levels), nodes };
}

function selects(round: Round, { positions }: Forest, nodes: [Blocks, Blocks], places: Place[]): Bytes {
  if (positions === 1) return NOTHING;
  const [first, second] = nodes.map((side) => hash(round.selectKey(), side));
  const packed = new Uint8Array(Math.ceil((places.length * positions) / 8));
  for (let place = 0; place < places.length * positions; place++) {
    const tree = Math.floor(place / positions), hint = (1 << places[tree].slot) ^ first[4 * tree] ^ second[4 * tree];
    packed[place >> 3] |= ((hint >> (place % positions)) & 1) << (place & 7);
  }
  return packed;
}

/** The product of two polynomials over GF(2), modulo x^64 + x^4 + x^3 + x + 1, each as its two halves. */
function times(low: number, high: number, otherLow: number, otherHigh: number): [number, number] {
  let sumLow = 0, sumHigh = 0;
  for (let bit = 63; bit >= 0; bit--) {
    const over = -(sumHigh >>> 31), take = -(((bit < 32 ? otherLow : otherHigh) >>> (bit & 31)) & 1);
    sumHigh = ((sumHigh << 1) | (sumLow >>> 31)) ^ (high & take);
    sumLow = (sumLow << 1) ^ (0x1b & over) ^ (low & take);
  }
  return [sumLow, sumHigh];
}

/** The rows that two answers have, by block: row after row, each its bytes. Refused if a tag does not fit. */
export function openAnswers(round: Round, { planted }: Forestry, answers: Bytes[]): Record<string, Map<number, Bytes>> {
  const sizes = round.sparse.map(({ dtype, width }) => sizeOf(dtype) * width);
  const tags = round.sparse.map((block, at) => new Uint32Array(block.authenticated ? 2 * Math.ceil(sizes[at] / 8) : 0));
  const trees = planted.reduce((size, { forest }) => size + forest.trees * sizes[forest.block], 0);
  const expected = trees + tags.reduce((size, tag) => size + 4 * tag.length, 0);
  refuse(answers.every(({ length }) => length === expected), `an answer of another size than ${expected} bytes`);
  const both = answers[0].map((byte, at) => byte ^ answers[1][at]);
  const found = round.sparse.map(() => new Map<number, Bytes>());
  let at = 0;
  for (const { forest, places, nodes } of planted) {
    const size = sizes[forest.block], tag = tags[forest.block], delta = xor(nodes[0], nodes[1]);
    places.forEach(({ row }, tree) => {
      const bytes = both.slice(at, (at += size)), padded = words(concat([bytes, new Uint8Array(-size & 7)]));
      if (row >= 0) found[forest.block].set(row, bytes);
      for (let word = 0; word < tag.length; word += 2) {
        const [low, high] = times(delta[4 * tree + 2], delta[4 * tree + 3], padded[word], padded[word + 1]);
        tag.set([tag[word] ^ low, tag[word + 1] ^ high], word);
      }
    });
  }
  refuse(same(concat(tags.map(bytesOf)), both.subarray(trees)), "a tag does not fit: no row of the retrieval is used");
  return Object.fromEntries(round.sparse.map(({ name }, block) => [name, found[block]]));
}

/** cs of every tree of a forest. */
export function proofs(round: Round, client: string, forestry: Forestry, { places, nodes }: Planted): Bytes {
  if (round.task.security !== "verified") return NOTHING;
  const parts = [round.id, utf8(client), forestry.digest, ...forestry.commitments];
  const [tag, mask] = ["fsl.tag-key", "fsl.tag-mask"].map((name) => K(name, ...parts));
  const masks = encrypt(mask, Uint32Array.from(places.flatMap(({ leaf }) => [leaf, leaf / 2 ** 32, 0, 0])));
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
  const key = round.convertKey(forest.block, salt), planes = Math.ceil(size / 16), element = round.bits / 32;
  const each = <T>(of: (tree: number) => T) => Array.from({ length: forest.trees }, (_, tree) => of(tree));
  const [first, second] = nodes.map((side) => {
    const inputs = new Uint32Array(4 * planes * forest.trees), place = (at: number) => 4 * Math.floor(at / planes / 4);
    return hash(key, inputs.map((_, at) => side[place(at) + (at & 3)] ^ (at & 3 ? 0 : 2 * ((at >> 2) % planes))));
  });
  const padding = new Uint8Array(16 * planes - size);
  const padded = words(concat(each((tree) => [payloads.subarray(size * tree, size * (tree + 1)), padding]).flat()));
  const opened = subtract(padded, subtract(first, second, element), element);
  const signs = opened.map((_, at) => -(nodes[1][4 * Math.floor(at / (4 * planes))] & 1));
  const hint = bytesOf(subtract(xor(opened, signs), signs, element));
  return concat(each((tree) => hint.subarray(16 * planes * tree, 16 * planes * tree + size)));
}
