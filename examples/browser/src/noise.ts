/** Noise_XK_25519_AESGCM_SHA256, the dialler's side, and the records that follow: "Connections" of the wire. */
import { gcm } from "@noble/ciphers/aes.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { type Bytes, NOTHING, be, concat, fromBe, hex, refuse, same, utf8 } from "./bytes.js";

const VERSION = 6, DATA = 0, CLOSE = 1, PING = 2, BODY = 65535 - 16 - 1;
const LONGEST = 2 ** 26 + 2 ** 16;  // of the replies that the page asks for: a part of a block

export const PREAMBLE: Bytes = Uint8Array.of(0x1f, 0x46, 0x53, 0x0a, 0, VERSION, 1, 1);  // of a live client

/** Refuse a listener's preamble that is not that of a live server of this number and version. */
export function checkPreamble(theirs: Bytes, server: number): void {
  const version = fromBe(theirs.subarray(4, 6)), [role, kind] = theirs.subarray(6);
  refuse(same(theirs.subarray(0, 4), PREAMBLE.subarray(0, 4)), "what listens there does not speak this protocol");
  refuse(version === VERSION, `the server speaks version ${version} of the wire, the page version ${VERSION}`);
  refuse(role === 2 + server, `what listens there is not S${server}: check the order of addresses`);
  refuse(kind === 1, "the server is a simulation, and takes no live client");
}

/** What stands in length ‖ content ‖ zeros. */
export function unpad(padded: Bytes, size: number): Bytes {
  const length = fromBe(padded.subarray(0, 2));
  refuse(padded.length === size && length <= size - 2, "padding of another size");
  refuse(padded.subarray(2 + length).every((byte) => byte === 0), "padding that is not zeros");
  return padded.slice(2, 2 + length);
}

/** What the listener says first of all; returns why it is busy, if it is. */
export function checkWelcome(message: Bytes): string {
  refuse(message.length === 1024 && message[0] >= 1 && message[0] <= 3, "no verdict of a server");
  const text = new TextDecoder().decode(unpad(message.slice(1), 1023));
  refuse(message[0] !== 2, `the server refuses this client: ${text}`);
  return message[0] === 3 ? text : "";
}

class Cipher {
  private number = 0;
  constructor(private key: Bytes) {}

  private next = (associated: Bytes) => gcm(this.key, concat([new Uint8Array(4), be(this.number++, 8)]), associated);
  seal = (plaintext: Bytes, associated = NOTHING) => this.next(associated).encrypt(plaintext) as Bytes;

  open(ciphertext: Bytes, associated = NOTHING): Bytes {
    try {
      return this.next(associated).decrypt(ciphertext) as Bytes;
    } catch {
      refuse(false, "a message that does not decrypt: it was altered, or is for another key");
    }
  }

  /** Seal or open a record; every 1,024th is the last one under its key. */
  record(act: "seal" | "open", data: Bytes): Bytes {
    const done = this[act](data), last = concat([new Uint8Array(4), new Uint8Array(8).fill(255)]);
    if (this.number % 1024 === 0) this.key = gcm(this.key, last).encrypt(new Uint8Array(32)).slice(0, 32) as Bytes;
    return done;
  }
}

export class Handshake {
  hash: Bytes = concat([utf8("Noise_XK_25519_AESGCM_SHA256"), new Uint8Array(4)]);
  private chain = this.hash;
  private cipher = new Cipher(new Uint8Array(32));
  private theirs = NOTHING;

  constructor(prologue: Bytes, private server: Bytes, private own: Bytes, private ephemeral: Bytes) {
    this.mix(prologue);
    this.mix(server);
  }

  private mix(data: Bytes): Bytes {
    this.hash = sha256(concat([this.hash, data])) as Bytes;
    return data;
  }

  private mixKey(secret: Bytes, theirs: Bytes): void {
    refuse(BigInt(`0x${hex(theirs.slice().reverse())}`) < 2n ** 255n - 19n, "a key of another form than X25519's own");
    let shared: Bytes;
    try {
      shared = x25519.getSharedSecret(secret, theirs) as Bytes;
    } catch {
      refuse(false, "a key that is a point of small order");
    }
    const both = hkdf(sha256, shared, this.chain, NOTHING, 64) as Bytes;
    [this.chain, this.cipher] = [both.slice(0, 32), new Cipher(both.slice(32))];
  }

  private seal = (plaintext: Bytes) => this.mix(this.cipher.seal(plaintext, this.hash));

  first(): Bytes {
    const key = this.mix(x25519.getPublicKey(this.ephemeral) as Bytes);
    this.mixKey(this.ephemeral, this.server);
    return concat([key, this.seal(NOTHING)]);
  }

  /** What is in the second message of 1,072 bytes. */
  second(message: Bytes): Bytes {
    this.theirs = this.mix(message.slice(0, 32));
    this.mixKey(this.ephemeral, this.theirs);
    const plaintext = this.cipher.open(message.slice(32), this.hash);
    this.mix(message.slice(32));
    return unpad(plaintext, 1024);
  }

  third(content: Bytes): Bytes {
    const key = this.seal(x25519.getPublicKey(this.own) as Bytes);
    this.mixKey(this.own, this.theirs);
    return concat([key, this.seal(concat([be(content.length, 2), content, new Uint8Array(1022 - content.length)]))]);
  }

  /** The two directions: ours, and the server's. */
  split(): [Writer, Reader] {
    const keys = hkdf(sha256, NOTHING, this.chain, NOTHING, 64) as Bytes;
    return [new Writer(keys.slice(0, 32)), new Reader(keys.slice(32))];
  }
}

export class Writer {
  constructor(key: Bytes, private cipher = new Cipher(key)) {}

  /** A record of this plaintext: type ‖ body. */
  record(plaintext: Bytes): Bytes {
    const sealed = this.cipher.record("seal", plaintext);
    return concat([be(sealed.length, 2), sealed]);
  }

  message(content: Bytes): Bytes {
    const all = concat([be(content.length, 8), content]);
    return concat(Array.from({ length: Math.ceil(all.length / BODY) }, (_, at) =>
      this.record(concat([Uint8Array.of(DATA), all.subarray(at * BODY, (at + 1) * BODY)]))));
  }

  ping = () => this.record(Uint8Array.of(PING));
  close = () => this.record(Uint8Array.of(CLOSE));
}

/** Turns bytes, cut anywhere, into whole messages; `closed` is true from the other side's CLOSE on. */
export class Reader {
  closed = false;
  private rest = NOTHING;
  private bodies: Bytes[] = [];
  private missing = 0;
  constructor(key: Bytes, private cipher = new Cipher(key)) {}

  feed(bytes: Bytes): Bytes[] {
    const all = concat([this.rest, bytes]), messages: Bytes[] = [];
    let at = 0;
    while (at + 2 <= all.length) {
      refuse(!this.closed, "bytes behind CLOSE");
      const end = at + 2 + fromBe(all.subarray(at, at + 2));
      refuse(end > at + 18, "a record that is too short");
      if (end > all.length) break;
      messages.push(...this.take(this.cipher.record("open", all.slice(at + 2, end))));
      at = end;
    }
    this.rest = all.slice(at);
    return messages;
  }

  /** The message that a record is the last one of, or none. */
  private take(record: Bytes): Bytes[] {
    const type = record[0], body = record.subarray(1);
    if (type === PING || type === CLOSE) {
      refuse(!body.length && !this.bodies.length, "PING or CLOSE with a body, or within a message");
      this.closed = type === CLOSE;
      return [];
    }
    refuse(type === DATA, `a record of the unknown type ${type}`);
    if (!this.bodies.length) {
      const total = fromBe(body.subarray(0, 8));
      refuse(body.length >= 8 && total <= LONGEST, "a message that is longer than any reply, or no size of one");
      this.missing = 8 + total;
    }
    refuse(body.length === Math.min(BODY, this.missing), "a record of another size than is due");
    this.missing -= body.length;
    this.bodies.push(body);
    return this.missing ? [] : [concat(this.bodies.splice(0)).slice(8)];
  }
}
