/** The page: it runs the wire's examples first, and then takes part in rounds, one for each press of a button. */
import { type Bytes, H, Refusal, hex, random, refuse, unhex } from "./bytes.js";
import { beliefs, rowOf, step, wordsOf } from "./learning.js";
import { checkAddress, dialWebSocket } from "./link.js";
import { type Pair, Participant, Refused, publicOf } from "./participant.js";
import { sizeOf } from "./round.js";
import { openStore } from "./store.js";
import type { Keys } from "./submission.js";
import { runRefusals, runVectors } from "./vectors.js";

/** What is served with the page, as pair.json: besides the pair, what the topics are called and which words have rows. */
interface Served extends Pair {
  labels?: string[];
  vocabulary?: string[];
}
type Rows = Map<number, number[]>;

const at = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [name, token, words, label] = ["name", "token", "words", "label"].map((id) => at<HTMLInputElement>(id));
const button = at<HTMLButtonElement>("take-part"), join = at("join").querySelector("button")!;
const json = async (path: string) => (await fetch(path)).json();
const clock = () => performance.now();

function element(tag: string, text = "", className = ""): HTMLElement {
  const made = document.createElement(tag);
  [made.textContent, made.className] = [text, className];
  return made;
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
    line.className = "bad";
    line.append(`: ${(error as Error).message}`);
    throw error;
  }
}

function status(text: string, className: string): void {
  at("ready").replaceChildren(text);
  at("ready").className = `status ${className}`;
}

class Page {
  private entered = false;
  private client!: Participant;
  constructor(private served: Served, private store: Awaited<ReturnType<typeof openStore>>) {}

  private get block() {
    return this.client.task.blocks.find(({ type }: { type: string }) => type === "sparse");
  }
  private get topics(): string[] {
    const width = this.block.width, labels = this.served.labels ?? [];
    return Array.from({ length: Math.max(2, width) }, (_, topic) => labels[topic] ?? `topic ${topic + 1}`);
  }
  private rows(): [word: string, row: number][] {
    const all = wordsOf(words.value).map((word) => [word, rowOf(word, this.block.rows, this.served.vocabulary)] as const);
    return all.filter((pair): pair is [string, number] => pair[1] !== null).slice(0, this.block.select);
  }

  /** Begin with the keys that this browser has, or those that it makes for a name. */
  async begin(): Promise<void> {
    const keys: Keys | undefined = await this.store.get("keys");
    if (keys) return this.be(keys);
    join.disabled = false;
    at("join").onsubmit = async (event) => {
      event.preventDefault();
      join.disabled = true;
      const made = { name: name.value.trim(), channel: random(32), statement: random(32) };
      await this.store.put("keys", made);
      await this.store.put("token", token.value);
      await this.be(made);
    };
  }

  private async be(keys: Keys): Promise<void> {
    const mine = publicOf(keys), known = unhex((await this.store.get("token")) ?? "");
    this.client = new Participant(this.served, keys, known, this.store, dialWebSocket);
    [name.value, name.disabled, token.disabled, join.disabled] = [keys.name, true, true, true];
    at("me").textContent = `You are ${keys.name}, with the keys ${fingerprint(mine.channel)} (channel) and ` +
      `${fingerprint(mine.statement)} (statements).`;
    at("me").dataset.keys = JSON.stringify({ name: keys.name, channel: hex(mine.channel), statement: hex(mine.statement) });
    label.replaceChildren(...this.topics.map((topic) => element("option", topic)));
    words.oninput = () => this.showRows();
    this.showRows();
    const before = await this.client.resume();
    if (before) at("steps").append(element("li", `an earlier visit's submission: ${before.seat ? "counted" : "not counted"}`));
    button.disabled = false;
    button.onclick = () => void this.takePart();
  }

  private showRows(): void {
    const chips = this.rows().map(([word, row]) => {
      const chip = element("span", word);
      chip.append(element("i", String(row)));
      return chip;
    });
    at("rows").replaceChildren(...chips);
  }

  /** One round: retrieve, train, submit, learn the outcome; then the same rows in the next round, to see the sum. */
  async takePart(): Promise<void> {
    button.disabled = true;
    at("steps").replaceChildren();
    try {
      const { client } = this, began = clock(), before = [client.sent, client.received].map((both) => both[0] + both[1]);
      const wanted = this.rows(), numbers = [...new Set(wanted.map(([, row]) => row))], topic = this.topics.indexOf(label.value);
      refuse(numbers.length, "none of these words has a row");
      if (!this.entered) await this.enter();
      const entering = clock(), retrieved = await this.retrieve(numbers);
      const unit = 2 ** -client.task.ring.fraction_bits, all = numbers.map((row) => retrieved.get(row)!);
      const values = new Map(numbers.map((row) => [row, step(all, topic, this.topics.length, unit)]));
      const own: Rows = new Map(numbers.map((row, place) => [row, all[place].map((one, each) => one + values.get(row)![each])]));
      const sparse = { [this.block.name]: values };
      const digest = await during("Submitted a share to each server; both receipts are signed for", () =>
        client.submit({ sparse, dense: {} }), (digest) => ` ${fingerprint(digest)}`);
      const took = clock() - entering;
      const sent = client.sent[0] + client.sent[1] - before[0], received = client.received[0] + client.received[1] - before[1];
      this.showBytes(sent, received);
      this.showBeliefs([retrieved, own], numbers);
      const number = client.round.number;
      this.entered = false;
      const told = await during(`The outcome of round ${number}, signed by both servers`, () => client.outcome(),
        ({ ending, participants, seat, excluded }) => `: ${ending.type === "done"
          ? `${participants} clients counted, ${seat ? "you among them" : `not you (${excluded})`}` : ending.explanation}`);
      const record = { number, digest: hex(digest), values: [...values], sent, received, took, entered: entering - began };
      at("steps").dataset.last = JSON.stringify({ ...record, counted: !!told.seat });
      await this.enter();
      const after = await this.retrieve(numbers);
      this.showBeliefs([retrieved, own, after], numbers);
      this.showEffect(wanted, [retrieved, own, after], topic);
      at("steps").dataset.after = JSON.stringify([...after]);
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

  private async retrieve(numbers: number[]): Promise<Rows> {
    const { name } = this.block;
    const text = `Retrieved ${numbers.length} rows of ${this.block.rows.toLocaleString("en")}, privately; every tag fits`;
    return during(text, async () => (await this.client.retrieve({ [name]: numbers }))[name]);
  }

  private showBeliefs(stages: Rows[], numbers: number[]): void {
    const topics = this.topics, all = stages.map((rows) => beliefs(numbers.map((row) => rows.get(row)!), topics.length));
    const bars = element("div", "", "bars");
    topics.forEach((topic, place) => {
      const bar = element("div");
      all.forEach((believed, stage) => {
        const one = bar.appendChild(element("i", "", ["before", "own", "sum"][stage]));
        one.style.width = `${100 * believed[place]}%`;
      });
      bars.append(element("span", topic), bar, element("span", all.map((one) => `${Math.round(100 * one[place])}`).join(" → ") + " %"));
    });
    at("beliefs").replaceChildren(bars);
  }

  private showEffect(wanted: [string, number][], stages: Rows[], topic: number): void {
    const line = (tag: string, cells: string[]) => {
      const made = element("tr");
      made.append(...cells.map((cell) => element(tag, cell)));
      return made;
    };
    at("effect").replaceChildren(line("th", ["word", "row", "retrieved", "your step", "all others", "after"]),
      ...wanted.map(([word, row]) => {
        const [before, own, after] = stages.map((rows) => rows.get(row)![topic] ?? 0);
        const cells = [before, own - before, after - own, after].map((each) => each.toFixed(4));
        return line("td", [word, String(row), ...cells]);
      }));
  }

  private showBytes(sent: number, received: number): void {
    const { rows, width } = this.block, [{ dtype }] = this.client.round.sparse, dense = this.client.round.dense;
    const all = rows * width + dense.reduce((sum, { size }) => sum + size, 0);
    const told: [string, number, string][] = [
      ["this page, up", sent, "own"], ["this page, down", received, "own"],
      ["trivial, up", (all * this.client.round.bits) / 8, ""], ["trivial, down", all * sizeOf(dtype), ""],
    ];
    const most = Math.max(...told.map(([, size]) => size)), bars = element("div", "", "bars wide");
    for (const [text, size, className] of told) {
      const bar = element("div"), one = bar.appendChild(element("i", "", className));
      one.style.width = `${(100 * size) / most}%`;
      bars.append(element("span", text), bar, element("span", `${size.toLocaleString("en")} B`));
    }
    at("bytes").replaceChildren(bars);
  }
}

async function start(): Promise<void> {
  const began = clock(), vectors = await json("wire-vectors.json");
  const compared = runVectors(vectors), refused = runRefusals(vectors, await json("wire-refusals.json"));
  const served: Served = await json("pair.json"), task = H("fsl.task", unhex(served.task));
  served.servers.forEach(({ address }) => checkAddress(address, { protocol: location.protocol, secure: isSecureContext }));
  new Participant(served, { name: "nobody", channel: random(32), statement: random(32) }, new Uint8Array(0), {} as any, dialWebSocket);
  const page = new Page(served, await openStore(hex(task)));
  const facts = [["task", fingerprint(task)], ...served.servers.map(({ address, statement }, number) =>
    [`S${number}`, `${fingerprint(unhex(statement))}  ${address}`])];
  at("facts").replaceChildren(...facts.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
  await page.begin();
  status(`The wire's examples: ${compared} made again, ${refused} refused as they must be, in ${Math.round(clock() - began)} ms`, "good");
}

start().catch((error: Error) => status(error instanceof Refusal ? error.message : `This page does not work here: ${error.message}`, "bad"));
