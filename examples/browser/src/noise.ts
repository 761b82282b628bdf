/** Noise_XK_25519_AESGCM_SHA256, the dialler's side, and the records that follow: "Connections" of the wire. */
import { gcm } from "@noble/ciphers/aes.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { type Bytes, NOTHING, be, concat, fromBe, refuse, same, utf8 } from "./bytes.js";

export const VERSION = 6;
const DATA = 0, CLOSE = 1, PING = 2;
const BODY = 65535 - 16 - 1;
/** No reply that the page asks for is longer: a part of a block is 2^26 bytes. */
const LONGEST = 2 ** 26 + 2 ** 16;

export const preamble = (role: number) => concat([[0x1f, 0x46, 0x53, 0x0a], be(VERSION, 2), [role, 1]] as Bytes[]);

/** Refuse a listener's preamble that is not that of a live server of this number and version. */
export function checkPreamble(theirs: Bytes, server: number): void {
  refuse(same(theirs.subarray(0, 4), preamble(1).subarray(0, 4)), "what listens there does not speak this protocol");
  const version = fromBe(theirs.subarray(4, 6));
  refuse(version === VERSION, `the server speaks version ${version} of the wire, the page version ${VERSION}`);
  refuse(theirs[6] === 2 + server, `what listens there is not S${server}: check the order of addresses`);
  refuse(theirs[7] === 1 && theirs.length === 8, "the server is a simulation, and takes no live client");
}

/** length ‖ content ‖ zeros. */
export function pad(content: Bytes, size: number): Bytes {
  return concat([be(content.length, 2), content, new Uint8Array(size - 2 - content.length)]);
}

export function unpad(padded: Bytes, size: number): Bytes {
  const length = fromBe(padded.subarray(0, 2));
  refuse(padded.length === size && length <= size - 2, "padding of another size");
  refuse(padded.subarray(2 + length).every((byte) => byte === 0), "padding that is not zeros");
  return padded.slice(2, 2 + length);
}

/** A key that no other bytes stand for, and that is no point of small order. */
function checkKey(key: Bytes): Bytes {
  const number = BigInt("0x" + key.reduceRight((text, byte) => text + byte.toString(16).padStart(2, "0"), ""));
  refuse(key.length === 32 && number < 2n ** 255n - 19n, "a key of another form than X25519's own");
  return key;
}

class Cipher {
  private number = 0;
  constructor(private key: Bytes) {}

  private nonce(): Bytes {
    return concat([new Uint8Array(4), be(this.number++, 8)]);
  }

  seal(plaintext: Bytes, associated = NOTHING): Bytes {
    return gcm(this.key, this.nonce(), associated).encrypt(plaintext) as Bytes;
  }

  open(ciphertext: Bytes, associated = NOTHING): Bytes {
    try {
      return gcm(this.key, this.nonce(), associated).decrypt(ciphertext) as Bytes;
    } catch {
      refuse(false, "a message that does not decrypt: it was altered, or is for another key");
    }
  }

  /** Seal or open a record; every 1,024th is the last one under its key. */
  record(act: "seal" | "open", data: Bytes): Bytes {
    const done = this[act](data);
    if (this.number % 1024 === 0) {
      const last = concat([new Uint8Array(4), new Uint8Array(8).fill(255)]);
      this.key = gcm(this.key, last).encrypt(new Uint8Array(32)).slice(0, 32) as Bytes;
    }
    return done;
  }
}

export class Handshake {
  hash: Bytes;
  private chain: Bytes;
  private cipher = new Cipher(new Uint8Array(32));
  private theirs: Bytes = NOTHING;

  constructor(prologue: Bytes, private server: Bytes, private own: Bytes, private ephemeral: Bytes) {
    this.hash = this.chain = concat([utf8("Noise_XK_25519_AESGCM_SHA256"), new Uint8Array(4)]);
    this.mix(prologue);
    this.mix(checkKey(server));
  }

  private mix(data: Bytes): Bytes {
    this.hash = sha256(concat([this.hash, data])) as Bytes;
    return data;
  }

  private mixKey(secret: Bytes, theirs: Bytes): void {
    let shared: Bytes;
    try {
      shared = x25519.getSharedSecret(secret, checkKey(theirs)) as Bytes;
    } catch {
      refuse(false, "a key that is a point of small order");
    }
    const both = hkdf(sha256, shared, this.chain, NOTHING, 64) as Bytes;
    this.chain = both.slice(0, 32);
    this.cipher = new Cipher(both.slice(32));
  }

  private seal(plaintext: Bytes): Bytes {
    return this.mix(this.cipher.seal(plaintext, this.hash));
  }

  private open(ciphertext: Bytes): Bytes {
    const plaintext = this.cipher.open(ciphertext, this.hash);
    this.mix(ciphertext);
    return plaintext;
  }

  first(): Bytes {
    const key = this.mix(x25519.getPublicKey(this.ephemeral) as Bytes);
    this.mixKey(this.ephemeral, this.server);
    return concat([key, this.seal(NOTHING)]);
  }

  /** What is in the second message of 1,072 bytes. */
  second(message: Bytes): Bytes {
    this.theirs = this.mix(message.slice(0, 32));
    this.mixKey(this.ephemeral, this.theirs);
    return unpad(this.open(message.slice(32)), 1024);
  }

  third(content: Bytes): Bytes {
    const key = this.seal(x25519.getPublicKey(this.own) as Bytes);
    this.mixKey(this.own, this.theirs);
    return concat([key, this.seal(pad(content, 1024))]);
  }

  /** The two directions: ours, and the server's. */
  split(): [Writer, Reader] {
    const keys = hkdf(sha256, NOTHING, this.chain, NOTHING, 64) as Bytes;
    return [new Writer(keys.slice(0, 32)), new Reader(keys.slice(32))];
  }
}

export class Writer {
  private cipher: Cipher;
  constructor(key: Bytes) {
    this.cipher = new Cipher(key);
  }

  /** A record of this plaintext: type ‖ body. */
  record(plaintext: Bytes): Bytes {
    const sealed = this.cipher.record("seal", plaintext);
    return concat([be(sealed.length, 2), sealed]);
  }

  message(content: Bytes): Bytes {
    const all = concat([be(content.length, 8), content]);
    const records: Bytes[] = [];
    for (let at = 0; at < all.length; at += BODY) {
      records.push(this.record(concat([Uint8Array.of(DATA), all.subarray(at, at + BODY)])));
    }
    return concat(records);
  }

  ping = () => this.record(Uint8Array.of(PING));
  close = () => this.record(Uint8Array.of(CLOSE));
}

/** Turns bytes, cut anywhere, into whole messages; `closed` is true from the other side's CLOSE on. */
export class Reader {
  closed = false;
  private cipher: Cipher;
  private rest: Bytes = NOTHING;
  private bodies: Bytes[] = [];
  private missing = 0;

  constructor(key: Bytes) {
    this.cipher = new Cipher(key);
  }

  feed(bytes: Bytes): Bytes[] {
    this.rest = concat([this.rest, bytes]);
    const messages: Bytes[] = [];
    for (let at = 0; ; ) {
      refuse(!this.closed || at === this.rest.length, "bytes behind CLOSE");
      const length = fromBe(this.rest.subarray(at, at + 2));
      refuse(this.rest.length < at + 2 || length > 16, "a record that is too short");
      if (this.rest.length < at + 2 + length || this.rest.length < at + 2) {
        this.rest = this.rest.slice(at);
        return messages;
      }
      this.take(this.cipher.record("open", this.rest.slice(at + 2, at + 2 + length)), messages);
      at += 2 + length;
    }
  }

  private take(record: Bytes, messages: Bytes[]): void {
    const type = record[0], body = record.subarray(1);
    if (type === PING || type === CLOSE) {
      refuse(!body.length && !this.bodies.length, "PING or CLOSE with a body, or within a message");
      this.closed = type === CLOSE;
      return;
    }
    refuse(type === DATA, `a record of the unknown type ${type}`);
    if (!this.bodies.length) {
      refuse(body.length >= 8, "a record that is too short for its message's size");
      const total = fromBe(body.subarray(0, 8));
      refuse(total <= LONGEST, `a message of ${total} bytes, more than any reply has`);
      this.missing = 8 + total;
    }
    refuse(body.length === Math.min(BODY, this.missing), "a record of another size than is due");
    this.missing -= body.length;
    this.bodies.push(body);
    if (this.missing === 0) {
      messages.push(concat(this.bodies).slice(8));
      this.bodies = [];
    }
  }
}

/** What the listener says first of all: its verdict. */
export function checkWelcome(message: Bytes): string {
  refuse(message.length === 1024 && message[0] >= 1 && message[0] <= 3, "no verdict of a server");
  const text = new TextDecoder().decode(unpad(message.slice(1), 1023));
  refuse(message[0] === 1, message[0] === 2 ? `the server refuses this client: ${text}` : `the server is busy: ${text}`);
  return text;
}
