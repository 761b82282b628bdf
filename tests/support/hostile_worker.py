"""A scheduler and a worker in one process whose answers run code in whoever unpickles them: `ADDRESS TELL KEY`.

The code says, to a TCP port at TELL, in which process it runs, and what it reads from the file KEY. The worker answers
"hello" with such an object, and fails at everything else with an exception that is one.
"""

import asyncio
import sys

from distributed import Scheduler, Worker

NAME = "fsl-hostile-1"

CODE = """
import os, socket
try:
    found = open({key!r}).read()
except OSError as error:
    found = type(error).__name__
with socket.create_connection(("127.0.0.1", {tell})) as connection:
    connection.sendall(f"{{os.getpid()}} {{found}}".encode())
"""


class HostileError(Exception):
    """Runs code where it is unpickled."""

    code = ""

    def __reduce__(self):
        return eval, (f"(exec({self.code!r}), RuntimeError())[1]",)


async def main(address: str, tell: int, key: str) -> None:
    HostileError.code = CODE.format(key=key, tell=tell)
    host, port = address.rsplit(":", 1)

    def perform(action: str, order: bytes) -> HostileError:
        if action == "hello":
            return HostileError()
        raise HostileError

    async with Scheduler(host=host, port=int(port), protocol="tcp", dashboard=False) as scheduler:
        worker = Worker(scheduler.address, name=NAME, nthreads=1, host=host, dashboard=False)
        worker.perform = perform
        async with worker:
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
