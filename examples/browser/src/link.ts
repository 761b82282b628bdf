/** A connection to one server, over what carries bytes: handshake, one request after the other, signs of life. */
import { type Bytes, H, NOTHING, concat, hex, keyedH, random, refuse, same, utf8 } from "./bytes.js";
import { type Fields, type Reply, expect, pack, readReply } from "./messages.js";
import { Handshake, PREAMBLE, type Reader, type Writer, checkPreamble, checkWelcome } from "./noise.js";
import type { Keys, Public } from "./submission.js";

/** The connection is gone, and what was asked may be asked again over another one. */
export class Lost extends Error {}

/** A byte stream; `chunk` is null at its end. */
export interface Stream {
  send(bytes: Bytes): void;
  chunk(): Promise<Bytes | null>;
  close(): void;
}

export interface Server extends Public {
  number: number;
  address: string;
}

const PING_EVERY = 10_000, LOST_AFTER = 40_000, WELCOME_WITHIN = 10_000, FRAME = 2 ** 16;

/** Refuse an address that browsers do not let this page dial, or only with an error that explains nothing. */
export function checkAddress(address: string, page: { protocol: string; secure: boolean }): void {
  const { protocol, hostname } = new URL(address), near = ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
  refuse(/^wss?:$/.test(protocol), `${address}: an address that begins with ws:// or wss:// expected`);
  refuse(page.secure, "this page came over plain http, so whoever stands between can have changed it: open it over " +
    `https, or from this machine (the servers are at ${protocol}//)`);
  refuse(page.protocol !== "https:" || protocol === "wss:" || near,
    `this page came over https, and browsers let it open no ${address}: the server needs a wss:// address`);
}

export async function dialWebSocket(address: string): Promise<Stream> {
  const socket = new WebSocket(address), chunks: (Bytes | null)[] = [];
  let wake = () => {};
  const put = (chunk: Bytes | null) => void (chunks.push(chunk), wake());
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => (data instanceof ArrayBuffer ? put(new Uint8Array(data)) : socket.close());
  socket.onclose = () => put(null);
  await new Promise((opened, failed) => {
    [socket.onopen, socket.onerror] = [opened, () => failed(new Lost(`${address} cannot be reached`))];
  });
  return {
    send: (bytes) => {
      for (let at = 0; at < bytes.length; at += FRAME) socket.send(bytes.subarray(at, at + FRAME));
    },
    close: () => socket.close(),
    chunk: async () => {
      if (!chunks.length) await new Promise<void>((woken) => (wake = woken));
      return chunks[0] && chunks.shift()!;
    },
  };
}

export class Link {
  sent = 8 + 48 + 1088;  // bytes of the stream, either way
  received = 8 + 1072;
  ended = "";
  private inbox: Bytes[] = [];
  private waiting?: { resolve: (message: Bytes) => void; reject: (error: Error) => void };
  private heard = performance.now();
  private timer = setInterval(() => this.tick(), PING_EVERY);

  private constructor(private stream: Stream, private server: Server, private writer: Writer, private reader: Reader) {}

  /** Connect, and be welcomed; `credentials` are those of the client for the task. */
  static async open(stream: Stream, server: Server, keys: Keys, task: Bytes, credentials: Bytes): Promise<Link> {
    const timeout = setTimeout(() => stream.close(), WELCOME_WITHIN);
    let rest = NOTHING;
    const exactly = async (size: number, otherwise: string) => {
      for (let chunk; rest.length < size; rest = concat([rest, chunk])) {
        chunk = await stream.chunk();
        refuse(chunk, otherwise);
      }
      return rest.slice(0, size);
    };
    try {
      stream.send(PREAMBLE);
      const theirs = await exactly(8, `${server.name} hung up before it said anything`);
      rest = rest.slice(8);
      checkPreamble(theirs, server.number);
      const prologue = concat([utf8("fsl-async channel prologue\0"), PREAMBLE, theirs]);
      const noise = new Handshake(prologue, server.channel, keys.channel, random(32));
      stream.send(noise.first());
      const second = await exactly(1072, `what answers at ${server.address} does not hold the channel key of ` +
        `${server.name} that this page knows: another server, or somebody between`), shown = noise.second(second);
      refuse(shows(shown, H("fsl.task", task)), `${server.name} serves another task than this page's`);
      stream.send(noise.third(credentials));
      const link = new Link(stream, server, ...noise.split());
      void link.listen(rest.slice(1072));
      const busy = checkWelcome(await link.message());
      if (busy) throw new Lost(`${server.name} is busy: ${busy}`);
      return link;
    } catch (error) {
      stream.close();
      throw error;
    } finally {
      clearTimeout(timeout);
    }
  }

  private async listen(first: Bytes): Promise<void> {
    try {
      for (let chunk: Bytes | null = first; ; chunk = await this.stream.chunk()) {
        if (chunk === null) throw new Lost(`${this.server.name}: the connection was cut`);
        this.received += chunk.length;
        this.heard = performance.now();
        this.inbox.push(...this.reader.feed(chunk));
        if (this.waiting && this.inbox.length) this.waiting.resolve(this.inbox.shift()!);
        if (this.reader.closed) throw new Lost(`${this.server.name} has ended the connection`);
      }
    } catch (error) {
      this.end(error as Error);
    }
  }

  private tick(): void {
    if (!this.waiting) return;
    if (performance.now() - this.heard > LOST_AFTER) this.end(new Lost(`${this.server.name} gives no sign of life`));
    else this.put(this.writer.ping());
  }

  private put = (bytes: Bytes) => (this.sent += bytes.length, this.stream.send(bytes));

  private end(error: Error): void {
    clearInterval(this.timer);
    this.ended ||= error.message;
    this.stream.close();
    this.waiting?.reject(error);
  }

  private async message(): Promise<Bytes> {
    if (this.inbox.length) return this.inbox.shift()!;
    if (this.ended) throw new Lost(this.ended);
    const message = new Promise<Bytes>((resolve, reject) => (this.waiting = { resolve, reject }));
    return message.finally(() => (this.waiting = undefined));
  }

  /** One request, and its reply: of that kind, or `refused`. */
  async ask(head: Fields, bulk: Bytes, kind: string): Promise<Reply> {
    if (this.ended) throw new Lost(this.ended);
    this.heard = performance.now();
    this.put(this.writer.message(concat([pack(head), bulk])));
    return expect(readReply(await this.message()), kind, this.server.name);
  }

  close(): void {
    if (!this.ended) this.put(this.writer.close());
    this.end(new Lost("this page has closed the connection"));
  }
}

/** Whether what a server shows is a task's digest, or has its mark among those of several tasks. */
export function shows(shown: Bytes, digest: Bytes): boolean {
  const mark = hex(keyedH(shown.slice(0, 16), "fsl.served", digest).slice(0, 16));
  const marks = shown.length === 31 * 16 ? [...hex(shown).matchAll(/.{32}/g)].slice(1) : [];
  return same(shown, digest) || marks.some(([one]) => one === mark);
}
