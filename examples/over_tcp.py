"""The deployed parties on loopback: key files, a task file, two servers and two clients that `connect` over TCP."""

import tempfile
from pathlib import Path

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import Identity, Server, connect, free_addresses, save_model, server_setup, write_deployment

TASK = Task(
    name="shop",
    blocks=[Sparse("items", rows=5_000, width=4, select=20)],
    ring=Ring(64, fraction_bits=24),
    min_clients=2,
    max_clients=2,
)


async def take_part(folder: Path, name: str) -> None:
    """One client's round, from its key file to its outcome."""
    async with connect(folder / "task.toml", folder / f"{name}.key") as client:
        async with client.taking_part():  # zeros, if an error comes between: who stays away shows which rows it has
            rows = await client.retrieve({"items": [3, 1, 4]})
            if np.abs(rows["items"]).max() > 1_000:
                raise ValueError(f"{name}: the rows cannot be right")
            await client.submit({"items": ([3, 1, 4], rows["items"] + 1)})
        outcome = await client.outcome()
        print(f"{name}: round {outcome.number}, {'counted' if outcome.counted else outcome.reason}")


async def main() -> None:
    """Write the files that two operators would exchange, then run all parties."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parties = {party: Identity.generate(party) for party in ("S0", "S1", "anna", "boris")}
        for party, identity in parties.items():
            identity.save(folder / f"{party}.key")
        publics = [identity.public for identity in parties.values()]
        addresses = free_addresses(2)
        write_deployment(folder, TASK, publics[:2], addresses, publics[2:])
        save_model(folder / "model.npz", {"items": np.zeros((5_000, 4))})
        for number, address in enumerate(addresses):
            (folder / f"S{number}.toml").write_text(
                f'server = {number}\nidentity = "S{number}.key"\ntask = "task.toml"\nclients = "clients.toml"\n'
                f'model = "model.npz"\nstore = "memory"\nlisten = "{address}"\n[rounds]\nclients = 2\ncount = 1\n'
            )
        async with trio.open_nursery() as nursery:
            for number in (0, 1):
                await nursery.start(Server(await server_setup(folder / f"S{number}.toml")).run)
            async with trio.open_nursery() as clients:
                for party in ("anna", "boris"):
                    clients.start_soon(take_part, folder, party)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
