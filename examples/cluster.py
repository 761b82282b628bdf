"""A Dask cluster computes a server's sum: scheduler and two workers are processes beside two servers (extra `dask`)."""

import tempfile
from pathlib import Path

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import Server, connect, free_addresses, save_model, server_setup
from parties.commands.demo.processes import run_cluster, write_cluster, write_parties, write_server

TASK = Task(name="shop", blocks=[Sparse("items", rows=20_000, width=4, select=20)], ring=Ring(64, fraction_bits=24))
CLIENTS = {f"client-{number}": number + 0.5 for number in range(20)}


async def submit(folder: Path, name: str) -> None:
    """One client's part: it changes two rows."""
    async with connect(folder / "task.toml", folder / f"{name}.key") as client:
        await client.submit({"items": ([3, 14], np.full((2, 4), CLIENTS[name]))})


async def main() -> None:
    """All on one host, where S0's blobs are a folder; workers on other hosts read them from an object store."""
    with tempfile.TemporaryDirectory() as name:
        folder, addresses, expected = Path(name), free_addresses(2), np.zeros((20_000, 4))
        save_model(folder / "model.npz", {"items": expected})
        write_parties(folder, TASK, addresses, CLIENTS)
        for number, table in enumerate(({"compute": write_cluster(folder)}, {})):  # S1 computes in its own process
            write_server(folder, number, addresses[number], log={"level": "error"}, **table)
        s0, s1 = [Server(await server_setup(folder / f"S{number}.toml")) for number in (0, 1)]
        async with trio.open_nursery() as cluster:
            cluster.start_soon(run_cluster, folder / "S0.toml")
            async with trio.open_nursery() as servers:
                for server in (s0, s1):
                    await servers.start(server.run)
                while len(s0.status().engine.workers) < 2:  # noqa: ASYNC110 - a status is looked at
                    await trio.sleep(0.1)
                async with trio.open_nursery() as clients:
                    for client in CLIENTS:
                        clients.start_soon(submit, folder, client)
                while sum(worker.held for worker in s0.status().engine.workers) < len(CLIENTS):  # noqa: ASYNC110 - the same
                    await trio.sleep(0.1)
                for worker in s0.status().engine.workers:
                    print(f"{worker.name} on {worker.host} has added up {worker.held} clients")
                expected[[3, 14]] = sum(CLIENTS.values())
                np.testing.assert_array_equal((await s0.close_round()).update["items"], expected)
                print(f"the sum of {len(CLIENTS)} clients is exact")
                servers.cancel_scope.cancel()
            cluster.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
