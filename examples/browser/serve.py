"""Two servers on this host, two clients in Python, and beside them the page that `make browser` builds."""

import hashlib
import http.server
import json
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import Identity, Server, connect, free_addresses, save_model, server_setup, write_deployment

DIST = Path(__file__).parent / "dist"
LABELS = ["sport", "cooking", "music", "travel", "money", "science", "weather", "family"]
TASK = Task(
    name="topics",
    blocks=[Sparse("words", rows=65_536, width=len(LABELS), select=512)],
    ring=Ring(64, fraction_bits=24),
    min_clients=3,
    max_clients=3,
)
TEXTS = {
    "anna": ("sport", "the team won the match with a late goal"),
    "boris": ("cooking", "stir the onions and late in the evening add the salt"),
}


def row_of(word: str) -> int:
    """The row of a word, as the page computes it."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") % 65_536


class Page(http.server.SimpleHTTPRequestHandler):
    """What `make browser` made, and pair.json: what a page has to know of the task."""

    def __init__(self, *arguments: Any, pair: bytes) -> None:
        self.pair = pair
        super().__init__(*arguments, directory=str(DIST))

    def do_GET(self) -> None:
        """Serve a file."""
        if self.path != "/pair.json":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.pair)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


async def take_part(folder: Path, name: str) -> None:
    """Every round, of a client that learns one text again and again."""
    label, text = TEXTS[name]
    rows = sorted({row_of(word) for word in text.split()})
    update = 0.25 * (np.eye(len(LABELS))[LABELS.index(label)] - 1 / len(LABELS))
    async with connect(folder / "task.toml", folder / f"{name}.key") as client:
        while True:
            await client.submit({"words": (rows, np.tile(update, (len(rows), 1)))})
            await client.outcome()


async def serve(folder: Path, port: int = 0, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Everything, until it is cancelled; reports the page's address. `folder` gets the files of both operators."""
    parties = {party: Identity.generate(party) for party in ("S0", "S1", *TEXTS)}
    for party, identity in parties.items():
        identity.save(folder / f"{party}.key")
    publics, addresses = [identity.public for identity in parties.values()], free_addresses(2)
    write_deployment(folder, TASK, publics[:2], addresses, publics[2:])
    save_model(folder / "model.npz", {"words": np.zeros((65_536, len(LABELS)), np.float32)})
    async with trio.open_nursery() as nursery:
        servers = []
        for number, address in enumerate(addresses):
            (folder / f"S{number}.toml").write_text(
                f'server = {number}\nidentity = "S{number}.key"\ntask = "task.toml"\nclients = "clients.toml"\n'
                f'model = "model.npz"\nstore = "memory"\nlisten = "{address}"\nenrolment = "open"\n'
                '[web]\nlisten = "ws://127.0.0.1:0/fsl"\n[rounds]\nclients = 3\n'
            )
            setup = await server_setup(folder / f"S{number}.toml")
            await nursery.start(Server(setup).run)
            keys = {"channel": publics[number].channel.hex(), "statement": publics[number].statement.hex()}
            servers.append({"address": setup.transport.also_bound[0], **keys})
        for name in TEXTS:
            nursery.start_soon(take_part, folder, name)
        pair = {"task": TASK.canonical().hex(), "servers": servers, "labels": LABELS}
        handler = partial(Page, pair=json.dumps(pair).encode())
        with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as httpd:
            threading.Thread(target=httpd.serve_forever, daemon=True).start()
            task_status.started(f"http://127.0.0.1:{httpd.server_port}/")
            try:
                await trio.sleep_forever()
            finally:
                httpd.shutdown()


async def main() -> None:
    """Serve, and say where."""
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            print("the page:", await nursery.start(serve, Path(folder), 8_080), flush=True)


if __name__ == "__main__":
    trio.run(main)
