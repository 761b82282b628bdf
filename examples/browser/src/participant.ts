/** A client of one task: enters rounds, retrieves rows, submits once, and learns what became of it. */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { type Bytes, H, K, NOTHING, Refusal, concat, random, refuse, same, unhex, utf8 } from "./bytes.js";
import { Link, Lost, type Server, type Stream } from "./link.js";
import { type Fields, type Reply, pack } from "./messages.js";
import { Round, missing, numbersOf, readTask, sizeOf } from "./round.js";
import { agreed, readStatement } from "./statement.js";
import type { Keys, Public, Submission, Updates } from "./submission.js";
import { checkReceipt, retrievalPart, submit } from "./submission.js";
import { type Forestry, openAnswers, plant, settle } from "./trees.js";

/** What is given out of a task and its servers; bytes as hexadecimal digits. */
export interface Pair { task: string; servers: { address: string; channel: string; statement: string }[] }

/** What outlasts a visit. */
export interface Store {
  get(name: string): Promise<any>;
  put(name: string, value: unknown): Promise<void>;
}

interface Known { number: number; id: Bytes }  // the last round that both servers announced

/** What a server replies in place of what was asked for. */
export class Refused extends Refusal { reason = "" }

const PART = 2 ** 26, ATTEMPTS = 6;

export function publicOf({ name, channel, statement }: Keys): Public {
  return { name, channel: x25519.getPublicKey(channel) as Bytes, statement: ed25519.getPublicKey(statement) as Bytes };
}

/** Check one server's announcement by itself. */
export function announced(head: Fields, after: number, known: Known | null, task: Bytes, servers: Public[]): Round {
  const round = new Round(head.config, readTask(task), task), keys: Public[] = round.config.servers, { number } = round;
  servers.forEach(({ channel, statement }, at) => refuse(
    same(channel, keys[at].channel) && same(statement, keys[at].statement),
    "a round of servers with other keys than this page knows"));
  refuse(number > after || head.strange, `round ${number} was announced, and one above ${after} was asked for`);
  refuse(head.strange || !known || number > known.number || (number === known.number && same(round.id, known.id)),
    `round ${number} was announced, and round ${known?.number} was known: a server begins anew by itself`);
  refuse(head.drawn || round.config.sample, "a round for others, in a task in which nobody is drawn");
  return round;
}

/** Check both servers' announcements of one number. */
export function together(rounds: Round[], heads: Fields[]): void {
  refuse(heads[0].strange === heads[1].strange, "one server alone has forgotten the last round: its store was lost");
  refuse(same(rounds[0].id, rounds[1].id) && heads[0].drawn === heads[1].drawn, "the servers announce two rounds");
}

export function checkBlock(content: Bytes, name: string, dtype: string, digest: Bytes, size: number): Bytes {
  const due = content.length === size * sizeOf(dtype) && H("fsl.model", utf8(name), utf8(dtype), content);
  refuse(due && same(due, digest), `block ${name} is not the one that the round announced`);
  return content;
}

export class Participant {
  readonly task: Fields;
  readonly me: Public;
  round!: Round;
  /** Bytes that went to both servers, and that came from them. */
  traffic = { sent: 0, received: 0 };
  private readonly taskBytes: Bytes;
  private readonly servers: Server[];
  private readonly credentials: Bytes[];
  private links: (Link | undefined)[] = [];
  private forestry?: Forestry;
  private query = 0;
  private after = 0;
  private era = 0;

  constructor(pair: Pair, private keys: Keys, token: Bytes, private store: Store,
    private dial: (address: string) => Promise<Stream>) {
    this.taskBytes = unhex(pair.task);
    this.task = readTask(this.taskBytes);
    const lacks = missing(this.task), task = H("fsl.task", this.taskBytes), { name } = keys;
    refuse(!lacks.length, `this page takes no part in a task with ${lacks.join(" and ")}`);
    this.servers = pair.servers.map(({ address, channel, statement }, number) =>
      ({ number, name: `S${number}`, address, channel: unhex(channel), statement: unhex(statement) }));
    refuse(this.servers.length === 2, "a task has two servers");
    this.me = publicOf(keys);
    const signature = ed25519.sign(H("fsl.enrolment", task, utf8(name), this.me.channel), keys.statement);
    this.credentials = [0, 1].map((server) => pack({
      task, name, statement: this.me.statement, signature,
      voucher: token.length ? K("fsl.voucher", token, task, Uint8Array.of(server)) : NOTHING,
    }));
  }

  private async link(server: number): Promise<Link> {
    const there = this.links[server], at = this.servers[server];
    if (there && !there.ended) return there;
    const stream = await this.dial(at.address), credentials = this.credentials[server];
    const opened = this.links[server] = await Link.open(stream, at, this.keys, this.taskBytes, credentials);
    this.count(opened, 0, 0);
    return opened;
  }

  private count(link: Link, sent: number, received: number): void {
    this.traffic.sent += link.sent - sent;
    this.traffic.received += link.received - received;
  }

  /** One request, again over another connection where one is lost, and later where a server is busy. */
  private async ask(server: number, head: Fields, bulk: Bytes, kind: string): Promise<Reply> {
    for (let attempt = 1, era = this.era; ; attempt++) {
      let pause = 1;
      try {
        refuse(era === this.era, "given up");
        const link = await this.link(server), { sent, received } = link, reply = await link.ask(head, bulk, kind);
        const { type, reason, explanation, retry_after } = reply.head;
        this.count(link, sent, received);
        if (type !== "refused") return reply;
        const refused = Object.assign(new Refused(`S${server} refuses (${reason}): ${explanation}`), { reason });
        if (reason !== "busy" || attempt === ATTEMPTS) throw refused;
        pause = retry_after;
      } catch (error) {
        if (!(error instanceof Lost) || attempt === ATTEMPTS) throw error;
      }
      await new Promise((done) => setTimeout(done, 1000 * pause));
    }
  }

  /** Ask both. Where one of them fails, the other one's reply is for nobody: later requests have new connections. */
  private both = (ask: (server: number) => Promise<Reply>): Promise<Reply[]> =>
    Promise.all([ask(0), ask(1)]).catch((error) => (this.close(), Promise.reject(error)));

  /** Close the connections, and give up what is under way. */
  close(): void {
    this.era++;
    this.links.forEach((link) => link?.close());
  }

  /** The next round in which this client may take part, as both servers announce it. */
  async enter(): Promise<Round> {
    let known: Known | null = (await this.store.get("known")) ?? null;
    for (const after = [0, 0]; ; ) {
      after.fill(this.after);
      let replies: Reply[], rounds: Round[];
      do {
        replies = await this.both((server) =>
          this.ask(server, { type: "enter", after: after[server], known: known?.id ?? NOTHING }, NOTHING, "opened"));
        rounds = replies.map(({ head }, at) => announced(head, after[at], known, this.taskBytes, this.servers));
        after.fill(Math.max(rounds[0].number, rounds[1].number) - 1);
      } while (rounds[0].number !== rounds[1].number);
      const heads = replies.map(({ head }) => head);
      together(rounds, heads);
      const [{ strange, drawn }] = heads, [round] = rounds;
      known = strange ? null : { number: round.number, id: round.id };
      this.after = known?.number ?? 0;
      await this.store.put("known", known);
      if (strange || !drawn) continue;
      const asked: { id: Bytes; query: number } | undefined = await this.store.get("asked");
      [this.round, this.forestry] = [round, undefined];
      this.query = asked && same(asked.id, round.id) ? asked.query : 0;
      return round;
    }
  }

  /** Numbers of every dense block. */
  async dense(): Promise<Record<string, number[]>> {
    const found: Record<string, number[]> = {}, { id, dense } = this.round, carrier = this.round.carrier(this.me.name);
    for (const { name, size, dtype, digest } of dense) {
      const parts: Bytes[] = [], head = { type: "download", round_id: id, block: name, union: false, whole: false };
      for (let part = 0; part * PART < size * sizeOf(dtype); part++) {
        parts.push((await this.ask(carrier, { ...head, part }, NOTHING, "block")).bulk);
      }
      found[name] = numbersOf(checkBlock(concat(parts), name, dtype, digest, size), dtype);
    }
    return found;
  }

  /** Numbers of rows, by block; nobody but this client learns which rows they are. */
  async retrieve(rows: Record<string, number[]>): Promise<Record<string, Map<number, number[]>>> {
    const { round, me } = this, carrier = round.carrier(me.name);
    refuse(this.query < this.task.retrievals, `${this.query} retrievals in this round: the task allows no more`);
    const query = ++this.query, forestry = plant(round, me.name, settle(round, rows), [random(16), random(16)]);
    const { part, digest } = retrievalPart(forestry), { seeds, commitments } = forestry;
    await this.store.put("asked", { id: round.id, query });
    const answers = await this.both((server) => this.ask(server, {
      type: "retrieve", round_id: round.id, query, seed: seeds[server], commitments, public_digest: digest,
    }, server === carrier ? part : NOTHING, "answer"));
    answers.forEach(({ head }) => refuse(head.query === query, `an answer to query ${head.query}, not ${query}`));
    const opened = openAnswers(round, forestry, answers.map(({ bulk }) => bulk));
    this.forestry = forestry;
    return Object.fromEntries(round.sparse.map(({ name, dtype }) =>
      [name, new Map([...opened[name]].map(([row, bytes]) => [row, numbersOf(bytes, dtype)]))]));
  }

  /** Submit, on a retrieval's trees where the task wants that; returns the digest that both receipts are signed for. */
  async submit(updates: Updates): Promise<Bytes> {
    const { round, me } = this, own = this.task.updates === "any" || !this.forestry;
    const rows = Object.entries(updates.sparse).map(([name, all]): [string, number[]] => [name, [...all.keys()]]);
    const places = own ? settle(round, Object.fromEntries(rows)) : [];
    const forestry = own ? plant(round, me.name, places, [random(16), random(16)]) : this.forestry!;
    for (const [name, wanted] of rows) {
      const planted = forestry.planted.filter(({ forest }) => round.sparse[forest.block].name === name);
      const there = new Set(planted.flatMap(({ places }) => places.map(({ row }) => row)));
      refuse(wanted.every((row) => there.has(row)), `a row of ${name} that the last retrieval did not have`);
    }
    const made = submit(round, me, forestry, own ? 0 : this.query, updates, random(16));
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
  async outcome(round_id: Bytes = this.round.id): Promise<Fields> {
    const told = await this.both((server) => this.ask(server, { type: "ask-outcome", round_id }, NOTHING, "finished"));
    const draft: Submission | null = await this.store.get("draft");
    const ours = draft && same(draft.fields.round_id, round_id) ? draft.digest : null;
    const statement = agreed(told.map(({ head, bulk }, server) =>
      readStatement(bulk, head.signature, this.servers[server], this.me.name, round_id, this.task)),
    told.map(({ bulk }) => bulk), ours);
    if (ours) await this.store.put("draft", null);
    return statement;
  }

  /** What became of a submission that an earlier visit left undecided: the same bytes again, then the outcome. */
  async resume(): Promise<Fields | null> {
    const draft: Submission | null = (await this.store.get("draft")) ?? null, closed = (error: unknown) => {
      if (!(error instanceof Refused) || error.reason !== "round-closed") throw error;
    };
    if (!draft) return null;
    await this.send(draft).catch(closed);
    const told = await this.outcome(draft.fields.round_id).catch(closed);
    await this.store.put("draft", null);
    return told ?? {};
  }
}
