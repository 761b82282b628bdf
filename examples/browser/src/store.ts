/** What outlasts a visit, in IndexedDB: keys, the last round that was known, and a submission that is undecided. */
import { Refusal } from "./bytes.js";
import type { Store } from "./participant.js";

const done = <T>(request: IDBRequest<T>) => new Promise<T>((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/** Open what this page keeps for one task; refused where the browser forbids it. */
export async function openStore(name: string): Promise<Store> {
  try {
    const request = indexedDB.open(`fsl-async ${name}`, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("kept");
    const database = await done(request);
    const kept = (mode: IDBTransactionMode) => database.transaction("kept", mode).objectStore("kept");
    const store: Store = {
      get: (name) => done(kept("readonly").get(name)),
      put: async (name, value) => void (await done(kept("readwrite").put(value, name))),
    };
    await store.put("opened", true);
    return store;
  } catch (error) {
    throw new Refusal(`This browser lets the page store nothing (${(error as Error).message}). Without its keys a ` +
      "client cannot come again, nor repeat what it has sent: so the page takes part in nothing (is it private?).");
  }
}
