/** A task's and a round's canonical bytes, and what follows from them: "Canonical bytes" and "Rows in bins". */
import { decode, encode } from "@msgpack/msgpack";
import { type Bytes, H, K, concat, le, refuse, same, utf8 } from "./bytes.js";
import { type Map, bin, either, isMap, list, map, nil, oneOf, pack, text, truth, whole } from "./messages.js";
import { Placement } from "./placement.js";

const TASK = [
  "name", "blocks", "ring", "protocol", "selection", "updates", "alignment", "security", "min_clients", "max_clients",
  "largest", "retrievals", "participants", "apply", "weights", "largest_weight", "optimizer", "sample", "bound",
  "bound_proof", "min_contributors", "lying_clients", "privacy",
];
const NUMBERS = ["largest", "largest_weight", "bound", "rate", "momentum", "beta1", "beta2", "epsilon", "noise", "delta",
  "budget"];
const BLOCKS: Record<string, string[]> = {
  sparse: ["type", "name", "rows", "select", "width", "stash"],
  dense: ["type", "name", "size"],
};
const DTYPES: Record<string, [size: number, read: (view: DataView, at: number) => number]> = {
  f4: [4, (view, at) => view.getFloat32(at, true)],
  f8: [8, (view, at) => view.getFloat64(at, true)],
  i1: [1, (view, at) => view.getInt8(at)],
  i2: [2, (view, at) => view.getInt16(at, true)],
  i4: [4, (view, at) => view.getInt32(at, true)],
  i8: [8, (view, at) => Number(view.getBigInt64(at, true))],
  u1: [1, (view, at) => view.getUint8(at)],
  u2: [2, (view, at) => view.getUint16(at, true)],
  u4: [4, (view, at) => view.getUint32(at, true)],
  u8: [8, (view, at) => Number(view.getBigUint64(at, true))],
};

export const sizeOf = (dtype: string) => DTYPES[dtype][0];

/** Numbers of a model, from its bytes. */
export function numbersOf(bytes: Bytes, dtype: string): number[] {
  const [size, read] = DTYPES[dtype], view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / size }, (_, at) => read(view, at * size));
}

/** A task in its canonical encoding: what page "task" calls a number is always a float. */
function packTask(value: any, name = ""): Bytes {
  if (Array.isArray(value)) return concat([[0x90 + value.length], ...value.map((each) => packTask(each))] as Bytes[]);
  if (isMap(value)) {
    const names = Object.keys(value);
    const head = names.length < 16 ? [0x80 + names.length] : [0xde, 0, names.length];
    return concat([head as any, ...names.flatMap((each) => [pack(each), packTask(value[each], each)])]);
  }
  const float = NUMBERS.includes(name) || (name === "sample" && value <= 1);
  return encode(value, { forceIntegerToFloat: float }) as Bytes;
}

export function readTask(bytes: Bytes): Map {
  const task = unpackLoosely(bytes);
  refuse(isMap(task) && Object.keys(task).join() === TASK.join(), "a task with other fields than version 6 has");
  refuse(list(isMap)(task.blocks) && task.blocks.length <= 32 && task.blocks.length > 0, "a task without 1 to 32 blocks");
  for (const block of task.blocks) {
    refuse(Object.keys(block).join() === BLOCKS[block.type]?.join(), `a block with other fields than it has`);
  }
  refuse(isMap(task.ring) && [32, 64, 128].includes(task.ring.bits), "a ring of 32, 64 or 128 bits expected");
  refuse(task.retrievals >= 1, "a task without retrievals");
  refuse(same(packTask(task), bytes), "a task that is not in its canonical encoding");
  return task;
}

/** What a task asks of a client that this page does not do: each by the name that it has in the task. */
export function missing(task: Map): string[] {
  const why: [boolean, string][] = [
    [task.protocol !== "ssa", `protocol = "${task.protocol}"`],
    [task.selection !== "adaptive", `selection = "${task.selection}"`],
    [task.alignment !== "all", `alignment = "${task.alignment}"`],
    [task.bound !== null, `bound = ${task.bound}`],
    [task.weights !== null, `weights = "${task.weights}"`],
    [!task.blocks.some((block: Map) => block.type === "sparse"), "no sparse block"],
  ];
  return why.filter(([there]) => there).map(([, text]) => text);
}

export interface Forest {
  block: number;
  number: number;
  bins: number;
  trees: number;
  /** Rows under one leaf. */
  positions: number;
  /** Elements of the count behind a payload: 1 or none. */
  counts: number;
  leaves: number;
  depth: number;
}

export interface SparseBlock {
  name: string;
  index: number;
  rows: number;
  select: number;
  width: number;
  dtype: string;
  forests: Forest[];
  placement: Placement;
  authenticated: boolean;
}

const LEAST: [upTo: number, bins: number][] = [[3, 50], [15, 320], [63, 150], [255, 70], [1023, 44], [Infinity, 43]];

/** The fewest and the most bins of a segment that a client accepts. */
export function limits(select: number, rows: number): [least: number, most: number] {
  const bins = Math.ceil((select * LEAST.find(([upTo]) => select <= upTo)![1]) / 100);
  return [Math.min(rows, bins), Math.min(rows, 16 * bins)];
}

const DESCRIBED = list(map({ name: text, dtype: text, digest: bin(32) }));
const KEYS = map({ channel: bin(32), statement: bin(32) });
const none = list(() => false);
const CONFIG = {
  version: oneOf(1), task: isMap, number: whole, session: whole, hash_seed: bin(32), toss: list(bin(32)),
  servers: list(KEYS), model: DESCRIBED, bins: list(whole), protocol: oneOf("ssa"), union: none, plain: none,
  found: bin(0), state: bin(0, 32), sample: either(nil, map({ asked: either(whole, truth), size: whole, digest: bin(32) })),
};

/** One round, as its configuration says; refused if that contradicts itself or the task. */
export class Round {
  readonly config: Map;
  readonly id: Bytes;
  readonly number: number;
  readonly bits: number;
  readonly sparse: SparseBlock[] = [];
  readonly dense: { name: string; size: number; dtype: string; digest: Bytes }[] = [];

  constructor(bytes: Bytes, readonly task: Map, readonly taskBytes: Bytes) {
    const config = unpackLoosely(bytes);
    refuse(isMap(config) && map(CONFIG)(config), "a round's configuration with fields that this page does not know");
    const fields = Object.keys(config).flatMap((name) => [
      pack(name), name === "task" ? taskBytes : pack(config[name]),
    ]);
    const again = concat([Uint8Array.of(0x80 + Object.keys(config).length), ...fields]);
    refuse(same(again, bytes), "a round of another task, or a configuration that is not in its canonical encoding");
    refuse(config.number >= 1 && config.session <= config.number, "a round without a number, or of a later session");
    refuse(config.toss.length === 2 && config.servers.length === 2, "a round without two servers");
    refuse((config.sample === null) === (task.sample === null), "a sample where the task has none, or none");
    refuse(config.model.length === task.blocks.length, "a model of other blocks than the task's");
    this.config = config;
    this.id = H("fsl.round", bytes);
    this.number = config.number;
    this.bits = task.ring.bits;
    task.blocks.forEach((block: Map, place: number) => this.addBlock(block, config.model[place]));
    refuse(config.bins.length === this.sparse.length, "a round that has not one number of bins for each sparse block");
  }

  private addBlock(block: Map, { name, dtype, digest }: Map): void {
    refuse(block.name === name, `a model whose blocks are not the task's: ${name}`);
    refuse(Object.hasOwn(DTYPES, dtype), `a model of the type ${dtype}, which this page does not read`);
    if (block.type === "dense") {
      this.dense.push({ name, size: block.size, dtype, digest });
      return;
    }
    const { rows, select, width, stash } = block, index = this.sparse.length, bins = this.config.bins[index];
    refuse(whole(bins), "a round that has not one number of bins for each sparse block");
    const [least, most] = limits(select, rows);
    refuse(bins >= least && bins <= most, `${bins} bins for block ${name}: from ${least} to ${most} expected`);
    const verified = this.task.security === "verified", counts = this.task.min_contributors === null ? 0 : 1;
    const forest = (number: number, bins: number, positions: number): Forest => {
      const leaves = Math.ceil(rows / (bins * positions)) + counts;
      const trees = number ? 1 : 3 * bins;
      return { block: index, number, bins, trees, positions, counts, leaves, depth: levels(leaves) };
    };
    const cost = (one: Forest) => one.depth * 128 + one.positions * width * this.bits;
    const first = (verified || 2 * width * this.bits > 128 ? [1] : [4, 2, 1])
      .map((positions) => forest(0, bins, positions))
      .reduce((best, one) => (cost(one) < cost(best) ? one : best));
    const forests = [first, ...Array.from({ length: stash }, (_, slot) => forest(slot + 1, 1, 1))];
    const key = K("fsl.placement", this.taskDigest(), this.config.hash_seed, le(index, 4));
    this.sparse.push({
      name, index, rows, select, width, dtype, forests,
      placement: new Placement(key, rows),
      authenticated: first.positions === 1,
    });
  }

  taskDigest = () => H("fsl.task", this.taskBytes);
  private key = (tag: string, ...parts: Bytes[]) => K(tag, this.taskDigest(), this.config.hash_seed, ...parts);
  expandKey = () => this.key("fsl.expand");
  selectKey = () => this.key("fsl.select");
  convertKey = (block: number, salt: Bytes) => this.key("fsl.convert", le(block, 4), le(this.number, 8), salt);

  /** The number of the server that carries a client's bulk in this round. */
  carrier(name: string): number {
    return H("fsl.carrier", this.config.hash_seed, le(this.number, 8), utf8(name))[0] & 1;
  }

  commitments(seeds: Bytes[], name: string): Bytes[] {
    return seeds.map((seed, server) => H("fsl.seed-commit", seed, this.id, utf8(name), Uint8Array.of(server)));
  }
}

function levels(leaves: number): number {
  let depth = 0;
  while (2 ** depth < leaves) depth++;
  return depth;
}

/** The value of bytes that have nothing behind it; whether its form is the shortest is for the caller to see. */
function unpackLoosely(bytes: Bytes): any {
  try {
    return decode(bytes);
  } catch (error) {
    refuse(false, `no MessagePack: ${(error as Error).message}`);
  }
}
