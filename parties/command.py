"""The `fsl-async` command.

Each subcommand parses its words, calls one function elsewhere, and reports; errors end in one line on stderr and a
stable exit code (see `parties.report`).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import trio
from cyclopts import App, CycloptsError, Parameter

from fsl_async.errors import FslError, MisuseError
from fsl_async.task import Dense
from parties.client import Client
from parties.deployment import Deployment, ServerFile, connect, server_setup
from parties.identity import Identity
from parties.model_files import load_model, save_model
from parties.report import ExitCode, Format, Report
from parties.server import Server
from parties.tokens import add_tokens, new_tokens

__all__ = ["app", "main"]

app = App(
    name="fsl-async",
    help="Federated submodel learning on two servers: private retrieval and secure aggregation.",
    version=partial(importlib.metadata.version, "fsl-async"),
    version_flags=["--version"],
    result_action="return_value",
)

FormatFlag = Annotated[Format, Parameter(name="--format", help="What stdout carries: text, or one JSON object.")]


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        words = " ".join(str(error).split())
        sys.stderr.write(f"fsl-async: {words}; `fsl-async --help` tells what there is\n")
        code = ExitCode.USAGE
    sys.exit(int(code or ExitCode.OK))


def _run(report: Report, work: Callable[[], Awaitable[None]]) -> int:
    """Run a subcommand's coroutine; one line and an exit code for every foreseen error."""
    try:
        trio.run(work, strict_exception_groups=True)
    except BaseException as error:
        reason = _root(error)
        if not isinstance(reason, FslError | KeyboardInterrupt):
            raise
        return report.failure(reason)
    return ExitCode.OK


def _root(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@app.command
def keygen(path: Path, *, name: str = "", form: FormatFlag = "text") -> int:
    """Make a party's keys: PATH (secret, readable by its owner alone) and PATH with the suffix .pub.

    Parameters
    ----------
    path:
        The secret file to write; never overwritten.
    name:
        The party's name; by default the file's, without suffix.
    """
    report = Report("keygen", form)

    async def work() -> None:
        identity = Identity.generate(name or path.stem)
        public = identity.save_both(path)
        keys = identity.public
        report.result(
            f"{path}: secret keys of {keys.name}, keep them\n{public}: public keys, give them out\n{keys.to_toml()}",
            {
                "name": keys.name,
                "secret": str(path),
                "public": str(public),
                "channel": keys.channel.hex(),
                "statement": keys.statement.hex(),
            },
        )

    return _run(report, work)


@app.command
def enrol(file: Path, *, tokens: int = 1, form: FormatFlag = "text") -> int:
    """Make enrolment tokens: print them, this once, and add their digests to FILE, which goes to both servers.

    Parameters
    ----------
    file:
        The file of digests that a server's TOML file names under `tokens`; made if there is none.
    tokens:
        How many; each lets one client enrol.
    """
    report = Report("enrol", form)

    async def work() -> None:
        made = new_tokens(tokens)
        total = add_tokens(file, made)
        report.progress(
            f"{file}: {total} tokens; a server reads it when it starts, and both need the same file. Each token below "
            "is for one client, and is kept nowhere:"
        )
        report.result("\n".join(made), {"file": str(file), "tokens": made, "in_file": total})

    return _run(report, work)


@app.command
def serve(config: Path, *, form: FormatFlag = "text") -> int:
    """Run one server until its rounds are over, or until it is interrupted.

    Parameters
    ----------
    config:
        The server's TOML file.
    """
    report = Report("serve", form)
    return _run(report, partial(_serve, config, report))


async def _serve(config: Path, report: Report) -> None:
    file = ServerFile.load(config)
    server = Server(server_setup(config))
    if server.enrolment.warning:
        report.progress(f"warning: {server.enrolment.warning}")
    ended: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        address = await nursery.start(server.run)
        report.progress(f"S{file.server} listens at {address}")
        async for account in server.settlements():
            ending = f"aborted: {account.aborted}" if account.aborted else f"{len(account.clients)} clients counted"
            ended["aborted" if account.aborted else "done"] += 1
            report.progress(f"round {account.number}: {ending}")
            if file.save_model:
                await trio.to_thread.run_sync(save_model, config.parent / file.save_model, server.model)
        await server.drain(file.drain_seconds)
        nursery.cancel_scope.cancel()
    report.result(
        f"S{file.server}: {ended['done']} rounds done, {ended['aborted']} aborted",
        {"server": file.server, "rounds_done": ended["done"], "rounds_aborted": ended["aborted"]},
    )


@app.command
def retrieve(
    task: Path,
    *,
    identity: Path,
    block: str,
    rows: str = "",
    output: Path,
    token: str = "",
    form: FormatFlag = "text",
) -> int:
    """Fetch rows of a block privately (or a dense block whole) into an .npz file.

    Parameters
    ----------
    task:
        The task file.
    identity:
        The client's secret key file.
    block:
        Which block.
    rows:
        Of a sparse block: the rows, as in 3,17,99; or @FILE with a JSON list of them.
    output:
        The .npz file to write: `rows` and `values`.
    token:
        To enrol with, where the servers ask for one; or @FILE, which other users of this machine cannot read.
    """
    report = Report("retrieve", form)

    async def work() -> None:
        chosen = _rows(rows)
        async with connect(task, identity, token=_token(token)) as client:
            dense = isinstance(client.task.block(block), Dense)
            if dense and rows:
                raise MisuseError(f"block {block!r} is dense: it is fetched whole, leave out --rows")
            values = (await client.retrieve({block: ... if dense else chosen}))[block]
            save_model(output, {"values": values} if dense else {"rows": chosen, "values": values})
            deferred = [int(row) for row in client.deferred.get(block, [])]
            report.result(
                f"{output}: {values.shape} of {values.dtype} from block {block!r}, {client.bytes_sent:,} bytes up, "
                f"{client.bytes_received:,} down" + (f"; deferred: {deferred}" if deferred else ""),
                {
                    "output": str(output),
                    "shape": list(values.shape),
                    "dtype": str(values.dtype),
                    "deferred": deferred,
                    "bytes_sent": client.bytes_sent,
                    "bytes_received": client.bytes_received,
                },
            )

    return _run(report, work)


@app.command
def submit(
    task: Path,
    *,
    identity: Path,
    update: Path,
    wait: bool = False,
    token: str = "",
    form: FormatFlag = "text",
) -> int:
    """Add an update to the open round's sum.

    Parameters
    ----------
    task:
        The task file.
    identity:
        The client's secret key file.
    update:
        An .npz file: for a sparse block NAME the arrays NAME.rows and NAME.values, for a dense one NAME.
    wait:
        Wait until the round has ended, and tell whether the update was counted.
    token:
        To enrol with, where the servers ask for one; or @FILE, which other users of this machine cannot read.
    """
    report = Report("submit", form)

    async def work() -> None:
        updates = _updates(Deployment.load(task), load_model(update))
        async with connect(task, identity, token=_token(token)) as client:
            receipt = await client.submit(updates)
            result: dict[str, Any] = {
                "round": receipt.number,
                "digest": receipt.digest.hex(),
                "bytes_sent": receipt.bytes_sent,
            }
            text = f"round {receipt.number}: both servers hold submission {receipt.digest.hex()[:16]}…"
            text += await _counted(client, result) if wait else ""
            report.result(text, result)

    return _run(report, work)


async def _counted(client: Client, result: dict[str, Any]) -> str:
    outcome = await client.outcome()
    result |= {"counted": outcome.counted, "reason": outcome.reason, "clients": list(outcome.clients)}
    return "; counted" if outcome.counted else f"; not counted: {outcome.reason}"


def _token(words: str) -> str:
    """A token from the command line."""
    try:
        return Path(words[1:]).read_text(encoding="ascii") if words.startswith("@") else words
    except (OSError, ValueError) as error:
        raise MisuseError(f"token: {words[1:]} cannot be read as the file of a token") from error


def _rows(words: str) -> Any:
    """Rows from the command line."""
    try:
        listed = json.loads(Path(words[1:]).read_text()) if words.startswith("@") else json.loads(f"[{words}]")
        return np.array(listed, dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise MisuseError(f"rows: a list as in 3,17,99 or @FILE with a JSON list expected, got {words!r}") from error


def _updates(deployment: Deployment, arrays: dict[str, Any]) -> dict[str, Any]:
    """A client's updates from the arrays of a file."""
    updates: dict[str, Any] = {}
    for name in dict.fromkeys(key.removesuffix(".rows").removesuffix(".values") for key in arrays):
        if isinstance(deployment.task.block(name), Dense):
            updates[name] = arrays[name]
        elif {f"{name}.rows", f"{name}.values"} <= arrays.keys():
            updates[name] = (arrays[f"{name}.rows"], arrays[f"{name}.values"])
        else:
            raise MisuseError(f"update: block {name!r} is sparse and needs both {name}.rows and {name}.values")
    return updates


@app.command
def demo(
    *,
    clients: int = 8,
    rounds: int = 8,
    seed: int = 7,
    transport: Annotated[
        Literal["memory", "tcp"], Parameter(help="memory: one process; tcp: S0, S1 and every client a process.")
    ] = "memory",
    form: FormatFlag = "text",
) -> int:
    """Learn from real text on two servers and several clients, and compare with learning in the clear.

    Parameters
    ----------
    clients:
        How many clients, 2 to 64.
    rounds:
        How many rounds.
    seed:
        Decides the division of the text, and in memory all randomness.
    """
    from parties.demo.run import run_demo

    report = Report("demo", form)
    return _run(
        report, partial(run_demo, clients=clients, rounds=rounds, seed=seed, transport=transport, report=report)
    )


@app.command
def plan(
    *,
    rows: int = 2**20,
    select: int = 10_486,
    width: int = 1,
    bits: int = 64,
    clients: int = 100,
    rounds: int = 1,
    security: Literal["verified", "semi-honest"] = "verified",
    union: int = 0,
    dtype: str = "f4",
    upload: float = 20,
    download: float = 100,
    link: float = 1000,
    latency: float = 5,
    cores: int = 2,
    calibrate: bool = False,
    paper: bool = False,
    plot: Path | None = None,
    form: FormatFlag = "text",
) -> int:
    """Tell what a task will cost, which variant to use, and up to which k/m that holds; nothing is run.

    Parameters
    ----------
    rows:
        m, the rows of the sparse block; by default the paper's 2^20, of which 1 % are selected.
    select:
        k, the rows a client selects.
    width:
        τ, the weights of a row; more than one makes mega-elements.
    bits:
        l, the bits of a ring element: 32, 64 or 128.
    clients:
        How many take part in a round.
    rounds:
        How many rounds there are.
    security:
        As a task's.
    union:
        The rows that all clients of a round select together; by default the most, clients × select.
    dtype:
        The model's: f2, f4, f8, i1, …
    upload:
        A client's upload, in megabits per second.
    download:
        Its download, likewise.
    link:
        The servers' link, each way, likewise.
    latency:
        Of that link, one way, in milliseconds.
    cores:
        That each server computes on.
    calibrate:
        Measure this machine's speeds (about a second) instead of taking typical ones.
    paper:
        Also compute the paper's table of bytes and its rates, beside ours.
    plot:
        Draw the upload over k/m into this file (.svg, .pdf, .png); needs the extra `plot`.
    """
    from parties.planning.plan import question_of, typical
    from parties.planning.run import run_plan

    report = Report("plan", form)

    async def work() -> None:
        question = question_of(
            rows=rows,
            select=select,
            width=width,
            bits=bits,
            clients=clients,
            rounds=rounds,
            security=security,
            union=union,
            dtype=dtype,
        )
        assumptions = typical(upload, download, link, latency, cores)
        run_plan(question, assumptions, calibrate=calibrate, paper=paper, plot=plot, report=report)

    return _run(report, work)


@app.command
def bench(
    suite: Literal["kernels", "psr", "generate", "round", "din", "growth", "all"],
    *,
    rows: int | None = None,
    select: int | None = None,
    width: int | None = None,
    bits: Literal[32, 64, 128] | None = None,
    clients: int | None = None,
    threads: int | None = None,
    isa: str = "",
    write: Path | None = None,
    form: FormatFlag = "text",
) -> int:
    """Measure this machine, and compare it with what it could do at most.

    Parameters
    ----------
    suite:
        What to measure: a server's evaluation, retrieval, a client's generation, a whole round, the paper's
        recommendation network, how costs grow; or all of it in about four minutes.
    rows:
        m. Sizes that are given replace the suite's own set of cases by one.
    select:
        k; by default the same part of the rows as in the suite's first case.
    width:
        Weights in a row.
    bits:
        Of a ring element.
    clients:
        In a round.
    threads:
        How many to compute with, bounds included; by default 1, and in a round as many as there are cores.
    isa:
        The instruction set: vaes512, vaes256, aesni, armv8 or portable; by default the fastest one here.
    write:
        With `all`: the folder that gets a README.md with all figures, and plots.
    """
    from parties.bench import BenchReport, Options, run_bench

    report = BenchReport(f"bench {suite}", form)
    try:
        run_bench(suite, Options(rows, select, width, bits, clients, threads), isa, write, report)
    except (FslError, KeyboardInterrupt, BaseExceptionGroup) as error:
        reason = _root(error)
        if not isinstance(reason, FslError | KeyboardInterrupt):
            raise
        return report.failure(reason)
    return ExitCode.OK
