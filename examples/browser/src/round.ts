/** A task's and a round's canonical bytes, and what follows from them: "Canonical bytes" and "Rows in bins". */
import { type Bytes, H, K, concat, le, refuse, same, utf8 } from "./bytes.js";
import { type Fields, bin, either, isMap, list, map, oneOf, pack, text, unpack, whole } from "./messages.js";
import { Placement, bitsOf } from "./placement.js";

const TASK = "name,blocks,ring,protocol,selection,updates,alignment,security,min_clients,max_clients,largest," +
  "retrievals,participants,apply,weights,largest_weight,optimizer,sample,bound,bound_proof,min_contributors," +
  "lying_clients,privacy";
const DTYPES: Record<string, string> = {
  f4: "Float32", f8: "Float64", i1: "Int8", i2: "Int16", i4: "Int32", i8: "BigInt64",
  u1: "Uint8", u2: "Uint16", u4: "Uint32", u8: "BigUint64",
};

export const sizeOf = (dtype: string) => Number(dtype[1]);

/** Numbers of a model, from its bytes. */
export function numbersOf(bytes: Bytes, dtype: string): number[] {
  const view: any = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), size = sizeOf(dtype);
  return Array.from({ length: bytes.length / size }, (_, at) => Number(view[`get${DTYPES[dtype]}`](at * size, true)));
}

/** Read the task that the page is served with. Rounds, and both servers' handshakes, are held to its very bytes. */
export function readTask(bytes: Bytes): Fields {
  const [task] = unpack(bytes, true);
  refuse(isMap(task) && Object.keys(task).join() === TASK, "a task with other fields than version 6 of the wire has");
  refuse(list(isMap)(task.blocks) && [32, 64, 128].includes(task.ring?.bits), "a task without blocks, or a ring");
  return task;
}

/** What a task asks of a client that this page does not do: each by the name that it has in the task. */
export function missing(task: Fields): string[] {
  const why: [boolean, string][] = [
    [task.protocol !== "ssa", `protocol = "${task.protocol}"`],
    [task.selection !== "adaptive", `selection = "${task.selection}"`],
    [task.alignment !== "all", `alignment = "${task.alignment}"`],
    [task.bound !== null, `bound = ${task.bound}`],
    [task.weights !== null, `weights = "${task.weights}"`],
    [!task.blocks.some(({ type }: Fields) => type === "sparse"), "no sparse block"],
  ];
  return why.filter(([there]) => there).map(([, text]) => text);
}

/** A forest of a sparse block: its bins, or a stash slot. `positions` are rows under one leaf, `counts` 1 or none. */
export type Forest =
  Record<"block" | "number" | "bins" | "trees" | "positions" | "counts" | "leaves" | "depth", number>;

export interface SparseBlock extends Record<"rows" | "select" | "width", number>, Record<"name" | "dtype", string> {
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

export const DESCRIBED = list(map({ name: text, dtype: text, digest: bin(32) }));
const NONE = list(() => false);
const CONFIG = map({
  version: oneOf(1), task: isMap, number: whole, session: whole, hash_seed: bin(32), toss: list(bin(32)),
  servers: list(map({ channel: bin(32), statement: bin(32) })), model: DESCRIBED, bins: list(whole),
  protocol: oneOf("ssa"), union: NONE, plain: NONE, found: bin(0), state: bin(0, 32),
  sample: either(oneOf(null), map({ asked: whole, size: whole, digest: bin(32) })),
});

/** One round, as its configuration says; refused if that contradicts itself or the task. */
export class Round {
  readonly config: Fields;
  readonly id: Bytes;
  readonly number: number;
  readonly bits: number;
  readonly sparse: SparseBlock[] = [];
  readonly dense: { name: string; size: number; dtype: string; digest: Bytes }[] = [];

  constructor(bytes: Bytes, readonly task: Fields, private readonly taskBytes: Bytes) {
    const [config] = unpack(bytes, true);
    refuse(CONFIG(config), "a round's configuration with fields that this page does not know");
    const again = Object.keys(config).flatMap((name) => [pack(name), name === "task" ? taskBytes : pack(config[name])]);
    refuse(same(concat([Uint8Array.of(0x80 + again.length / 2), ...again]), bytes),
      "a round of another task, or a configuration that is not in its canonical encoding");
    refuse(config.number >= 1 && config.session <= config.number, "a round without a number, or of a later session");
    refuse(config.toss.length === 2 && config.servers.length === 2, "a round without two servers");
    refuse((config.sample === null) === (task.sample === null), "a sample where the task has none, or none");
    refuse(config.model.length === task.blocks.length, "a model of other blocks than the task's");
    [this.config, this.id, this.number, this.bits] = [config, H("fsl.round", bytes), config.number, task.ring.bits];
    task.blocks.forEach((block: Fields, place: number) => this.add(block, config.model[place]));
    refuse(config.bins.length === this.sparse.length, "a round that has not one number of bins for each sparse block");
  }

  private add({ type, name, size, rows, select, width, stash }: Fields, told: Fields): void {
    const { dtype, digest } = told, block = this.sparse.length, bins = this.config.bins[block];
    refuse(told.name === name, `a model whose blocks are not the task's: ${told.name}`);
    refuse(Object.hasOwn(DTYPES, dtype), `a model of the type ${dtype}, which this page does not read`);
    if (type === "dense") return void this.dense.push({ name, size, dtype, digest });
    const [least, most] = limits(select, rows), counts = this.task.min_contributors === null ? 0 : 1;
    refuse(bins >= least && bins <= most, `${bins} bins for block ${name}: from ${least} to ${most} expected`);
    const forest = (number: number, bins: number, positions: number): Forest => {
      const leaves = Math.ceil(rows / (bins * positions)) + counts;
      return { block, number, bins, trees: number ? 1 : 3 * bins, positions, counts, leaves, depth: bitsOf(leaves) };
    };
    const cost = ({ depth, positions }: Forest) => depth * 128 + positions * width * this.bits;
    const several = this.task.security !== "verified" && 2 * width * this.bits <= 128;
    const possible = [...[4, 2].filter((p) => several && p * bins <= rows), 1].map((p) => forest(0, bins, p));
    const first = possible.reduce((best, one) => (cost(one) < cost(best) ? one : best));
    const forests = [first, ...Array.from({ length: stash }, (_, slot) => forest(slot + 1, 1, 1))];
    const placement = new Placement(this.key("fsl.placement", le(block, 4)), rows);
    this.sparse.push({ name, rows, select, width, dtype, forests, placement, authenticated: first.positions === 1 });
  }

  private key = (tag: string, ...parts: Bytes[]) =>
    K(tag, H("fsl.task", this.taskBytes), this.config.hash_seed, ...parts);
  expandKey = () => this.key("fsl.expand");
  selectKey = () => this.key("fsl.select");
  convertKey = (block: number, salt: Bytes) => this.key("fsl.convert", le(block, 4), le(this.number, 8), salt);

  /** The number of the server that carries a client's bulk in this round. */
  carrier = (client: string) => H("fsl.carrier", this.config.hash_seed, le(this.number, 8), utf8(client))[0] & 1;
  commitments = (seeds: Bytes[], client: string) =>
    seeds.map((seed, server) => H("fsl.seed-commit", seed, this.id, utf8(client), Uint8Array.of(server)));
}
