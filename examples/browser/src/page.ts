/** The page: it makes the wire's examples first, and then takes part in rounds, one for each press of a button. */
import { type Bytes, H, Refusal, hex, random, refuse, unhex } from "./bytes.js";
import { beliefs, rowOf, step, wordsOf } from "./learning.js";
import { checkAddress, dialWebSocket } from "./link.js";
import { type Pair, Participant, Refused, type Store, publicOf } from "./participant.js";
import { sizeOf } from "./round.js";
import { openStore } from "./store.js";
import type { Keys } from "./submission.js";
import { runVectors } from "./vectors.js";

/** What is served with the page, as pair.json: the pair, what topics are called, and which words have rows. */
type Served = Pair & { labels?: string[]; vocabulary?: string[] };
type Rows = Map<number, number[]>;

const at = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [name, token, words, label] = ["name", "token", "words", "label"].map((id) => at<HTMLInputElement>(id));
const [button, join] = ["take-part", "make-keys"].map((id) => at<HTMLButtonElement>(id));
const json = async (path: string) => (await fetch(path)).json(), clock = () => performance.now();

function element(tag: string, content: (string | Node)[] | string = "", className = ""): HTMLElement {
  const made = document.createElement(tag);
  made.append(...[content].flat());
  made.className = className;
  return made;
}

/** Bars of so many parts of 1 beside a text and a number; each is a stage, or one of a kind. */
function bars(lines: [text: string, parts: [size: number, className: string][], number: string][]): HTMLElement {
  const bar = ([size, className]: [number, string]) => {
    const made = element("i", "", className);
    made.style.width = `${100 * size}%`;
    return made;
  };
  return element("div", lines.flatMap(([text, parts, number]) =>
    [element("span", text), element("div", parts.map(bar)), element("span", number)]), "bars");
}

/** The first 80 bits, as both operators' pages write them. */
function fingerprint(digest: Bytes): string {
  const bits = Array.from(digest.subarray(0, 10), (byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.match(/.{5}/g)!.map((five) => "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[parseInt(five, 2)]);
  return letters.join("").match(/.{4}/g)!.join(" ");
}

/** A line of what happens, with how long it took; it is marked if it fails. */
async function during<T>(text: string, work: () => Promise<T>, said: (done: T) => string = () => ""): Promise<T> {
  const line = at("steps").appendChild(element("li", text, "now")), began = clock();
  try {
    const done = await work();
    line.append(said(done), element("em", `${Math.round(clock() - began)} ms`));
    line.className = "";
    return done;
  } catch (error) {
    line.append(`: ${(error as Error).message}`);
    line.className = "bad";
    throw error;
  }
}

class Page {
  private entered = false;
  private client!: Participant;
  private readonly block: { name: string; rows: number; width: number; select: number };
  private readonly topics: string[];

  constructor(private served: Served, private store: Store) {
    const nobody = { name: "nobody", channel: random(32), statement: random(32) };
    const { task } = new Participant(served, nobody, new Uint8Array(0), store, dialWebSocket), { labels = [] } = served;
    this.block = task.blocks.find(({ type }: { type: string }) => type === "sparse");
    const length = Math.max(2, this.block.width);
    this.topics = Array.from({ length }, (_, topic) => labels[topic] ?? `topic ${topic + 1}`);
    label.replaceChildren(...this.topics.map((topic) => element("option", topic)));
    const show = () => at("rows").replaceChildren(...this.rows().map(([word, row]) =>
      element("span", [word, element("i", `${row}`)])));
    words.oninput = show;
    show();
  }

  private rows(): [word: string, row: number][] {
    const all = wordsOf(words.value).map((word) => [word, rowOf(word, this.block.rows, this.served.vocabulary)]);
    return all.filter((pair): pair is [string, number] => pair[1] !== null).slice(0, this.block.select);
  }

  /** Begin with the keys that this browser has, or those that it makes for a name. */
  async begin(): Promise<void> {
    const keys: Keys | undefined = await this.store.get("keys");
    if (keys) return this.be(keys);
    join.disabled = false;
    at("join").onsubmit = async (event) => {
      event.preventDefault();
      const made = { name: name.value.trim(), channel: random(32), statement: random(32) };
      await this.store.put("token", token.value);
      await this.store.put("keys", made);
      await this.be(made);
    };
  }

  private async be(keys: Keys): Promise<void> {
    const { channel, statement } = publicOf(keys), known = unhex((await this.store.get("token")) ?? "");
    this.client = new Participant(this.served, keys, known, this.store, dialWebSocket);
    [name.value, name.disabled, token.disabled, join.disabled] = [keys.name, true, true, true];
    at("me").replaceChildren(`You are ${keys.name}. For a server's list: channel `, element("code", hex(channel)),
      ", statement ", element("code", hex(statement)));
    button.disabled = false;
    button.onclick = () => void this.takePart();
    addEventListener("pagehide", () => this.client.close());
  }

  /** One round: retrieve, train, submit, learn the outcome; then the same rows in the next round, to see the sum. */
  async takePart(): Promise<void> {
    button.disabled = true;
    at("steps").replaceChildren();
    try {
      const { client, block } = this, words = this.rows(), wanted = [...new Set(words.map(([, row]) => row))];
      refuse(wanted.length, "none of these words has a row");
      const before = { ...client.traffic }, left = await client.resume();
      const became = left?.seat ? "counted" : left?.ending ? "not counted" : "forgotten";
      if (left) at("steps").append(element("li", `An earlier submission was ${became}`));
      if (!this.entered) await this.enter();
      const began = clock(), rows = await this.retrieve(wanted);
      const unit = 2 ** -client.task.ring.fraction_bits, topic = this.topics.indexOf(label.value);
      const change = await during("Trained one step, here", async () =>
        step([...rows.values()], topic, this.topics.length, unit));
      const own: Rows = new Map([...rows].map(([row, all]) => [row, all.map((one, at) => one + change[at])]));
      const sparse = { [block.name]: new Map(wanted.map((row) => [row, change])) };
      const digest = await during("Submitted a share to each server; both receipts are signed for",
        () => client.submit({ sparse, dense: {} }), (digest) => ` ${fingerprint(digest)}`);
      const took = clock() - began, { number } = client.round;
      const sent = client.traffic.sent - before.sent, received = client.traffic.received - before.received;
      this.showBytes(sent, received);
      this.showBeliefs([rows, own]);
      this.entered = false;
      const told = await during(`The outcome of round ${number}, signed by both servers: `, () => client.outcome(),
        ({ ending, participants, seat, excluded }) => ending.type === "done"
          ? `${participants} clients counted, ${seat ? "and you" : `not you (${excluded})`}` : ending.explanation);
      const done = { number, counted: !!told.seat, digest: hex(digest), rows: wanted, change, sent, received, took };
      await this.enter();
      const after = await this.retrieve(wanted);
      this.showBeliefs([rows, own, after]);
      this.showEffect(words, [rows, own, after], topic);
      at("steps").dataset.done = JSON.stringify({ ...done, after: [...after] });
    } catch (error) {
      this.entered &&= !(error instanceof Refused);
      if (!at("steps").querySelector(".bad")) at("steps").append(element("li", (error as Error).message, "bad"));
    } finally {
      button.disabled = false;
    }
  }

  private async enter(): Promise<void> {
    await during("Both servers announce", () => this.client.enter(), ({ number }) => ` round ${number}`);
    if (this.client.round.dense.length) await during("Downloaded what is dense", () => this.client.dense());
    this.entered = true;
  }

  private retrieve(wanted: number[]): Promise<Rows> {
    const { name, rows } = this.block, of = rows.toLocaleString("en");
    return during(`Retrieved ${wanted.length} rows of ${of}, privately`,
      async () => (await this.client.retrieve({ [name]: wanted }))[name], () => "; every tag fits");
  }

  private showBeliefs(stages: Rows[]): void {
    const all = stages.map((rows) => beliefs([...rows.values()], this.topics.length));
    at("beliefs").replaceChildren(bars(this.topics.map((topic, place) => [topic,
      all.map((believed, stage) => [believed[place], ["", "own", "sum"][stage]]),
      `${all.map((believed) => Math.round(100 * believed[place])).join(" → ")} %`])));
  }

  private showEffect(words: [string, number][], stages: Rows[], topic: number): void {
    const line = (tag: string, cells: string[]) => element("tr", cells.map((cell) => element(tag, cell)));
    const head = ["word", "row", "retrieved", "your step", "all others", "after"];
    at("effect").replaceChildren(line("th", head), ...words.map(([word, row]) => {
      const [before, own, after] = stages.map((rows) => rows.get(row)![topic] ?? 0);
      return line("td", [word, `${row}`, ...[before, own - before, after - own, after].map((each) => each.toFixed(4))]);
    }));
  }

  private showBytes(sent: number, received: number): void {
    const { sparse, dense, bits } = this.client.round, [{ dtype }] = sparse;
    const sizes = [...sparse.map(({ rows, width }) => rows * width), ...dense.map(({ size }) => size)];
    const all = sizes.reduce((sum, size) => sum + size);
    const told: [string, number, string][] = [["this page, up", sent, "own"], ["this page, down", received, "own"],
      ["trivial, up", (all * bits) / 8, ""], ["trivial, down", all * sizeOf(dtype), ""]];
    const most = Math.max(...told.map(([, size]) => size));
    at("bytes").replaceChildren(bars(told.map(([text, size, className]) =>
      [text, [[size / most, className]], `${size.toLocaleString("en")} B`])));
  }
}

const status = (text: string, good: boolean) =>
  at("ready").replaceWith(Object.assign(element("p", text, `status ${good ? "good" : "bad"}`), { id: "ready" }));

async function start(): Promise<void> {
  const began = clock(), made = runVectors(await json("wire-vectors.json")), took = Math.round(clock() - began);
  const served: Served = await json("pair.json"), task = H("fsl.task", unhex(served.task));
  const { protocol } = location, here = { protocol, secure: isSecureContext };
  served.servers.forEach(({ address }) => checkAddress(address, here));
  const page = new Page(served, await openStore(hex(task)));
  const facts = [["task", fingerprint(task)], ...served.servers.map(({ address, statement }, number) =>
    [`S${number}`, `${fingerprint(unhex(statement))}  ${address}`])];
  at("facts").replaceChildren(...facts.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
  await page.begin();
  status(`This page makes ${made} examples of the wire as they are written down (${took} ms)`, true);
}

start().catch((error: Error) =>
  status(error instanceof Refusal ? error.message : `This page does not work here: ${error.message}`, false));
