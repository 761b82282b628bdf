/** A client of one task: enters rounds, retrieves rows, submits once, and learns what became of it. */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { type Bytes, H, K, NOTHING, Refusal, concat, hex, random, refuse, same, unhex, utf8 } from "./bytes.js";
import { Link, Lost, type Server, type Stream } from "./link.js";
import { type Map, type Reply, pack } from "./messages.js";
import { Round, numbersOf, missing, readTask, sizeOf } from "./round.js";
import { agreed, readStatement } from "./statement.js";
import { type Keys, type Public, type Submission, type Updates, checkReceipt, retrievalPart, submit } from "./submission.js";
import { type Forestry, openAnswers, plant, settle } from "./trees.js";

/** What the page knows of the task and its servers; the first to be given out with the page. */
export interface Pair {
  task: string;
  servers: { address: string; channel: string; statement: string }[];
}

/** What outlasts a visit. */
export interface Store {
  get(name: string): Promise<any>;
  put(name: string, value: unknown): Promise<void>;
}

/** The last round that both servers announced. */
interface Known {
  number: number;
  id: Bytes;
}

export function publicOf({ name, channel, statement }: Keys): Public {
  return { name, channel: x25519.getPublicKey(channel) as Bytes, statement: ed25519.getPublicKey(statement) as Bytes };
}

/** Check one server's announcement by itself. */
export function announced(head: Map, after: number, known: Known | null, task: Bytes, servers: Server[]): Round {
  const round = new Round(head.config, readTask(task), task);
  const told: Map[] = round.config.servers;
  refuse(servers.every(({ channel, statement }, at) => same(channel, told[at].channel) && same(statement, told[at].statement)),
    "a round of servers with other keys than this page knows");
  refuse(round.number > after || head.strange, `round ${round.number} was announced, and one above ${after} was asked for`);
  refuse(head.strange || !known || round.number > known.number || (round.number === known.number && same(round.id, known.id)),
    `round ${round.number} was announced, and round ${known?.number} was known: a server begins anew by itself`);
  refuse(head.drawn || round.config.sample, "a round for others, in a task in which nobody is drawn");
  return round;
}

/** Check both servers' announcements of one number. */
export function together(rounds: Round[], heads: Map[]): void {
  refuse(heads[0].strange === heads[1].strange, "one server alone has forgotten the last round: its store was lost");
  refuse(same(rounds[0].id, rounds[1].id) && heads[0].drawn === heads[1].drawn, "the servers announce different rounds");
}

export class Participant {
  readonly task: Map;
  readonly taskBytes: Bytes;
  readonly servers: Server[];
  readonly me: Public;
  round!: Round;
  sent = [0, 0];
  received = [0, 0];
  private links: (Link | undefined)[] = [];
  private forestry?: Forestry;
  private query = 0;
  private after = 0;
  private readonly credentials: (server: number) => Bytes;

  constructor(pair: Pair, private keys: Keys, token: Bytes, private store: Store,
    private dial: (address: string) => Promise<Stream>) {
    this.taskBytes = unhex(pair.task);
    this.task = readTask(this.taskBytes);
    const lacks = missing(this.task);
    refuse(!lacks.length, `this page takes no part in a task with ${lacks.join(" and ")}`);
    refuse(pair.servers.length === 2, "a task has two servers");
    this.servers = pair.servers.map(({ address, channel, statement }, number) => ({
      number, name: `S${number}`, address, channel: unhex(channel), statement: unhex(statement),
    }));
    this.me = publicOf(keys);
    const digest = H("fsl.task", this.taskBytes);
    const signature = ed25519.sign(H("fsl.enrolment", digest, utf8(keys.name), this.me.channel), keys.statement);
    const fields = { task: digest, name: keys.name, statement: this.me.statement, signature };
    this.credentials = (server) => pack({
      ...fields,
      voucher: token.length ? K("fsl.voucher", token, digest, Uint8Array.of(server)) : NOTHING,
    });
  }

  // ---- requests

  private async link(server: number): Promise<Link> {
    const there = this.links[server];
    if (there && !there.ended) return there;
    const at = this.servers[server];
    const opened = await Link.open(await this.dial(at.address), at, this.keys, this.taskBytes, this.credentials(server));
    return (this.links[server] = opened);
  }

  /** One request, again over another connection where one is lost, and later where a server is busy. */
  private async ask(server: number, head: Map, bulk: Bytes, kind: string): Promise<Reply> {
    for (let attempt = 1; ; attempt++) {
      let pause = 1;
      try {
        const link = await this.link(server), { sent, received } = link;
        try {
          const reply = await link.ask(head, bulk, kind);
          const { type, reason, explanation, retry_after } = reply.head;
          if (type !== "refused") return reply;
          if (reason !== "busy" || attempt > 5) throw new Refused(reason, `S${server} refuses (${reason}): ${explanation}`);
          pause = retry_after;
        } finally {
          this.sent[server] += link.sent - sent;
          this.received[server] += link.received - received;
        }
      } catch (error) {
        if (!(error instanceof Lost) || attempt > 5) throw error;
      }
      await new Promise((done) => setTimeout(done, 1000 * pause));
    }
  }

  private both(ask: (server: number) => Promise<Reply>): Promise<Reply[]> {
    return Promise.all([ask(0), ask(1)]);
  }

  close(): void {
    this.links.forEach((link) => link?.close());
  }

  // ---- a round

  /** The next round in which this client may take part, as both servers announce it. */
  async enter(): Promise<Round> {
    let known: Known | null = (await this.store.get("known")) ?? null;
    for (const after = [this.after, this.after]; ; ) {
      const ask = (server: number) =>
        this.ask(server, { type: "enter", after: after[server], known: known?.id ?? NOTHING }, NOTHING, "opened");
      const heads = (await this.both(ask)).map(({ head }) => head);
      const rounds = heads.map((head, at) => announced(head, after[at], known, this.taskBytes, this.servers));
      const [first, second] = rounds.map(({ number }) => number);
      if (first !== second) {
        after.fill(Math.max(first, second) - 1);
        continue;
      }
      together(rounds, heads);
      if (heads[0].strange) {
        known = null;
        await this.store.put("known", null);
        after.fill((this.after = 0));
        continue;
      }
      known = { number: first, id: rounds[0].id };
      await this.store.put("known", known);
      after.fill((this.after = first));
      if (!heads[0].drawn) continue;
      [this.round, this.query, this.forestry] = [rounds[0], 0, undefined];
      return this.round;
    }
  }

  /** Numbers of every dense block. */
  async dense(): Promise<Record<string, number[]>> {
    const found: Record<string, number[]> = {}, part = 2 ** 26;
    for (const { name, size, dtype, digest } of this.round.dense) {
      const parts: Bytes[] = [];
      for (let number = 0; number * part < size * sizeOf(dtype); number++) {
        const head = { type: "download", round_id: this.round.id, block: name, union: false, whole: false, part: number };
        parts.push((await this.ask(this.round.carrier(this.me.name), head, NOTHING, "block")).bulk);
      }
      found[name] = numbersOf(checkBlock(parts, name, dtype, digest, size), dtype);
    }
    return found;
  }

  /** Numbers of rows, by block; nobody but this client learns which rows they are. */
  async retrieve(rows: Record<string, number[]>): Promise<Record<string, globalThis.Map<number, number[]>>> {
    const { round } = this;
    refuse(this.query < this.task.retrievals, `${this.query} retrievals in this round: the task allows no more`);
    const seeds = [random(16), random(16)], query = ++this.query;
    const forestry = plant(round, this.me.name, settle(round, rows), seeds), { part, digest } = retrievalPart(forestry);
    const head = { type: "retrieve", round_id: round.id, query, seed: NOTHING, commitments: forestry.commitments };
    const carrier = round.carrier(this.me.name);
    const answers = await this.both((server) => this.ask(server, { ...head, seed: seeds[server], public_digest: digest },
      server === carrier ? part : NOTHING, "answer"));
    answers.forEach(({ head }) => refuse(head.query === query, `an answer to query ${head.query}, not ${query}`));
    const opened = openAnswers(round, forestry, answers.map(({ bulk }) => bulk));
    this.forestry = forestry;
    return Object.fromEntries(round.sparse.map(({ name, dtype }) => [
      name, new globalThis.Map([...opened[name]].map(([row, bytes]) => [row, numbersOf(bytes, dtype)])),
    ]));
  }

  /** Submit, on a retrieval's trees where the task wants that; returns the digest that both receipts are signed for. */
  async submit(updates: Updates): Promise<Bytes> {
    const { round, task } = this;
    const own = task.updates === "any" || !this.forestry;
    const rows = Object.fromEntries(Object.entries(updates.sparse).map(([name, values]) => [name, [...values.keys()]]));
    const forestry = own ? plant(round, this.me.name, settle(round, rows), [random(16), random(16)]) : this.forestry!;
    for (const { name } of own ? [] : round.sparse) {
      const retrieved = new Set(forestry.planted.flatMap((one) => (round.sparse[one.forest.block].name === name ? one.rows : [])));
      refuse((rows[name] ?? []).every((row) => retrieved.has(row)), `a row of ${name} that the last retrieval did not have`);
    }
    const made = submit(round, this.me, forestry, own ? 0 : this.query, updates, random(16));
    await this.store.put("draft", made);
    return this.send(made);
  }

  private async send({ digest, fields, seeds, bulk, carrier }: Submission): Promise<Bytes> {
    const receipts = await this.both((server) => this.ask(server, { type: "submit", ...fields, seed: seeds[server] },
      server === carrier ? bulk : NOTHING, "receipt"));
    receipts.forEach(({ head }, server) => checkReceipt(head, digest, this.servers[server]));
    return digest;
  }

  /** What both servers sign of a round once it is over; by default of this one. */
  async outcome(round_id: Bytes = this.round.id): Promise<Map> {
    const told = await this.both((server) => this.ask(server, { type: "ask-outcome", round_id }, NOTHING, "finished"));
    const awaited = { client: this.me.name, round_id, task: this.task };
    const read = told.map(({ head, bulk }, server) => readStatement(bulk, head.signature, this.servers[server], awaited));
    const draft: Submission | null = await this.store.get("draft");
    const ours = draft && same(draft.fields.round_id, round_id) ? draft.digest : null;
    const statement = agreed(read, told.map(({ bulk }) => bulk), ours);
    if (ours) await this.store.put("draft", null);
    return statement;
  }

  /** What became of a submission that an earlier visit left undecided: the same bytes again, then the outcome. */
  async resume(): Promise<Map | null> {
    const draft: Submission | null = (await this.store.get("draft")) ?? null;
    if (!draft) return null;
    try {
      await this.send(draft);
    } catch (error) {
      if (!(error instanceof Refused) || error.reason !== "round-closed") throw error;
    }
    try {
      return await this.outcome(draft.fields.round_id);
    } catch (error) {
      if (!(error instanceof Refused) || error.reason !== "round-closed") throw error;
      await this.store.put("draft", null);
      return { forgotten: hex(draft.digest) };
    }
  }
}

/** What a server replies in place of what was asked for. */
export class Refused extends Refusal {
  constructor(readonly reason: string, why: string) {
    super(why);
  }
}

export function checkBlock(parts: Bytes[], name: string, dtype: string, digest: Bytes, size: number): Bytes {
  const all = concat(parts);
  refuse(all.length === size * sizeOf(dtype) && same(H("fsl.model", utf8(name), utf8(dtype), all), digest),
    `block ${name} is not the one that the round announced`);
  return all;
}
