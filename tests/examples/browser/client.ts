/** The page's client without its page: `vectors` makes the wire's examples, `take-part` plays a pair's rounds. */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { NOTHING, unhex } from "../../../examples/browser/src/bytes.ts";
import { type Stream, checkAddress } from "../../../examples/browser/src/link.ts";
import { Participant } from "../../../examples/browser/src/participant.ts";
import { missing, readTask } from "../../../examples/browser/src/round.ts";
import { runVectors } from "../../../examples/browser/src/vectors.ts";
import { runRefusals } from "./refusals.ts";

function dial(address: string): Promise<Stream> {
  const [host, port] = address.split(":"), socket = connect(Number(port), host), chunks = socket.iterator();
  return new Promise((opened, failed) => {
    socket.once("error", failed);
    socket.once("connect", () => opened({
      send: (bytes) => void socket.write(bytes),
      chunk: async () => (await chunks.next().catch(() => ({}))).value ?? null,
      close: () => void socket.end(),
    }));
  });
}

async function takePart(told: any): Promise<object> {
  const kept = new Map<string, any>();
  const store = {
    get: async (name: string) => kept.get(name),
    put: async (name: string, value: any) => void kept.set(name, value),
  };
  const { name, channel, statement } = told.client;
  const keys = { name, channel: unhex(channel), statement: unhex(statement) };
  const client = new Participant(told, keys, NOTHING, store, dial), counted: boolean[] = [];
  for (const rows of told.rounds) {
    await client.enter();
    const dense = await client.dense(), sparse = await client.retrieve(rows);
    await client.submit({ sparse, dense });
    counted.push(!!(await client.outcome()).seat);
  }
  client.close();
  return { counted, left: kept.get("draft") };
}

/** What is said of an address on a page, or of a task. */
function said(check: () => unknown): string {
  try {
    return String(check() ?? "");
  } catch (error) {
    return (error as Error).message;
  }
}

const [, , command, docs] = process.argv;
const json = (file: string | number) => JSON.parse(readFileSync(file, "utf8"));
if (command === "take-part") console.log(JSON.stringify(await takePart(json(0)).catch(({ message }) => message)));
else if (command === "check") {
  const { addresses, tasks } = json(0);
  console.log(JSON.stringify({
    addresses: addresses.map(([address, protocol, secure]: [string, string, boolean]) =>
      said(() => checkAddress(address, { protocol, secure }))),
    tasks: tasks.map((task: string) => said(() => missing(readTask(unhex(task))).join(", "))),
  }));
} else {
  const vectors = json(`${docs}/wire-vectors.json`), refusals = json(`${docs}/wire-refusals.json`);
  console.log(JSON.stringify({ compared: runVectors(vectors), refused: runRefusals(vectors, refusals) }));
}
