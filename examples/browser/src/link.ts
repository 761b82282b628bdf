/** A connection to one server, over anything that carries bytes: handshake, one request after the other, signs of life. */
import { type Bytes, H, NOTHING, concat, keyedH, random, refuse, same, utf8 } from "./bytes.js";
import { type Map, type Reply, pack, readReply } from "./messages.js";
import { Handshake, type Reader, type Writer, checkPreamble, checkWelcome, preamble } from "./noise.js";
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

/** A server takes frames of 2^20 bytes at most. */
const FRAME = 2 ** 16;
const PING_EVERY = 10_000, LOST_AFTER = 40_000, WELCOME_WITHIN = 10_000;

/** The address as the page's own security lets it be dialled; what else would fail with no explanation is refused here. */
export function checkAddress(address: string, page: { protocol: string; secure: boolean }): void {
  const { protocol, hostname } = new URL(address);
  const near = ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
  refuse(protocol === "ws:" || protocol === "wss:", `${address}: an address that begins with ws:// or wss:// expected`);
  refuse(page.secure, `this page came over plain http, so whoever stands between can have changed it, and the browser ` +
    `gives it no keys: open it over https, or from this machine (servers at ${protocol}//)`);
  refuse(page.protocol !== "https:" || protocol === "wss:" || near,
    `this page came over https, and browsers let it open no ${address}: the server needs a wss:// address`);
}

export async function dialWebSocket(address: string): Promise<Stream> {
  const socket = new WebSocket(address), chunks: (Bytes | null)[] = [];
  let wake = () => {};
  socket.binaryType = "arraybuffer";
  const put = (chunk: Bytes | null) => {
    chunks.push(chunk);
    wake();
  };
  socket.onmessage = ({ data }) => (data instanceof ArrayBuffer ? put(new Uint8Array(data)) : socket.close());
  socket.onclose = () => put(null);
  await new Promise<void>((opened, failed) => {
    socket.onopen = () => opened();
    socket.onerror = () => failed(new Lost(`${address} cannot be reached`));
  });
  return {
    send: (bytes) => {
      for (let at = 0; at < bytes.length; at += FRAME) socket.send(bytes.subarray(at, at + FRAME));
    },
    close: () => socket.close(),
    chunk: async () => {
      if (!chunks.length) await new Promise<void>((woken) => (wake = woken));
      return chunks[0] === null ? null : chunks.shift()!;
    },
  };
}

export class Link {
  /** Bytes of the stream, either way. */
  sent = 0;
  received = 0;
  ended = "";
  private inbox: Bytes[] = [];
  private waiting?: { resolve: (reply: Bytes) => void; reject: (error: Error) => void };
  private heard = performance.now();
  private timer = 0 as unknown as ReturnType<typeof setInterval>;

  private constructor(private stream: Stream, private server: Server, private writer: Writer, private reader: Reader) {}

  /** Connect, and be welcomed; `credentials` are those of the client for the task. */
  static async open(stream: Stream, server: Server, keys: Keys, task: Bytes, credentials: Bytes): Promise<Link> {
    const timeout = setTimeout(() => stream.close(), WELCOME_WITHIN);
    try {
      const ours = preamble(1), read = new Exactly(stream);
      stream.send(ours);
      const theirs = await read.bytes(8, `${server.name} hung up before it said anything`);
      checkPreamble(theirs, server.number);
      const prologue = concat([utf8("fsl-async channel prologue\0"), ours, theirs]);
      const noise = new Handshake(prologue, server.channel, keys.channel, random(32));
      stream.send(noise.first());
      const second = await read.bytes(1072, `what answers at ${server.address} does not hold the channel key of ` +
        `${server.name} that this page knows: another server, or somebody between`);
      const shown = noise.second(second), digest = H("fsl.task", task);
      refuse(same(shown, digest) || marked(shown, digest), `${server.name} serves another task than this page's`);
      stream.send(noise.third(credentials));
      const link = new Link(stream, server, ...noise.split());
      void link.listen(read.rest);
      checkWelcome(await link.message());
      link.sent = ours.length + 48 + 1088;
      link.received += 8 + 1072;
      return link;
    } catch (error) {
      stream.close();
      throw error;
    } finally {
      clearTimeout(timeout);
    }
  }

  private async listen(first: Bytes): Promise<void> {
    this.timer = setInterval(() => this.tick(), PING_EVERY);
    try {
      for (let chunk: Bytes | null = first; ; chunk = await this.stream.chunk()) {
        if (chunk === null) throw new Lost(`${this.server.name}: ${this.ended || "the connection was cut"}`);
        this.received += chunk.length;
        this.heard = performance.now();
        this.inbox.push(...this.reader.feed(chunk));
        if (this.waiting && this.inbox.length) this.waiting.resolve(this.inbox.shift()!);
        if (this.reader.closed) {
          const last = this.inbox.map(readReply).find(({ head }) => head.type === "refused");
          throw new Lost(`${this.server.name} ended the connection${last ? `: ${last.head.explanation}` : ""}`);
        }
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

  private put(bytes: Bytes): void {
    this.sent += bytes.length;
    this.stream.send(bytes);
  }

  private end(error: Error): void {
    clearInterval(this.timer);
    this.ended ||= error.message;
    this.stream.close();
    this.waiting?.reject(error);
  }

  private async message(): Promise<Bytes> {
    if (this.inbox.length) return this.inbox.shift()!;
    if (this.ended) throw new Lost(this.ended);
    try {
      return await new Promise((resolve, reject) => (this.waiting = { resolve, reject }));
    } finally {
      this.waiting = undefined;
    }
  }

  /** One request, and its reply: of that kind, or `refused`. */
  async ask(head: Map, bulk: Bytes, kind: string): Promise<Reply> {
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

export function expect(reply: Reply, kind: string, server: string): Reply {
  refuse([kind, "refused"].includes(reply.head.type), `${server} replied ${reply.head.type} where ${kind} is due`);
  return reply;
}

/** Whether one of the marks that a server of several tasks shows is that of this task. */
export function marked(shown: Bytes, digest: Bytes): boolean {
  if (shown.length !== 16 + 30 * 16) return false;
  const mark = keyedH(shown.slice(0, 16), "fsl.served", digest).slice(0, 16);
  return Array.from({ length: 30 }, (_, at) => shown.slice(16 * (at + 1), 16 * (at + 2))).some((one) => same(one, mark));
}

class Exactly {
  rest: Bytes = NOTHING;
  constructor(private stream: Stream) {}

  async bytes(size: number, otherwise: string): Promise<Bytes> {
    while (this.rest.length < size) {
      const chunk = await this.stream.chunk();
      refuse(chunk, otherwise);
      this.rest = concat([this.rest, chunk]);
    }
    const bytes = this.rest.slice(0, size);
    this.rest = this.rest.slice(size);
    return bytes;
  }
}
