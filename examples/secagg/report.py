"""The page and its chart, made from what was measured and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.secagg.chart import svg
from examples.secagg.run import ratio
from examples.secagg.words import filled, part, power, size, spread, table, time

NAME = "comparison-secagg"
Result = Mapping[str, Any]
Cell = Mapping[str, Any]

COMPARED = {"up": "bytes up", "down": "bytes down", "client": "a client's time", "server": "a server's time"}
ALIKE = 1.05
"""Figures that differ by less are called alike."""


def write(result: Result, folder: Path) -> list[Path]:
    """Write both, and return where."""
    chart, text = folder / f"{NAME}.svg", folder / f"{NAME}.md"
    chart.write_text(svg(_largest(result)), encoding="utf-8")
    text.write_text(page(result), encoding="utf-8")
    return [chart, text]


def page(result: Result) -> str:
    """The page."""
    parts = (_head, _table, _winners, _dropout, _sharing, _clipping, _protection, _choice, _method)
    return "\n".join(filled(section(result)) for section in parts)


def _largest(result: Result) -> list[Cell]:
    """The cells of the largest model."""
    largest = max(cell["weights"] for cell in result["cells"])
    return [cell for cell in result["cells"] if cell["weights"] == largest]


def _head(result: Result) -> str:
    theirs, ours, cells = result["settings"]["secaggplus"], result["settings"]["ours"], _largest(result)
    fewer = ", ".join(f"{ratio(cell, 'up'):.3g} × ({part(cell)})" for cell in cells if ratio(cell, "up") > ALIKE)
    more = ", ".join(f"{1 / ratio(cell, 'up'):.3g} × ({part(cell)})" for cell in cells if ratio(cell, "up") * ALIKE < 1)
    return f"""
# Compared with Flower's SecAgg+

Both add up what clients send so that nobody sees one client's part. SecAgg+ does it with one server, and masks that
cancel between clients; this project does it with two servers, and trees that hide which rows a client touched. The
same changes went through both: {result["clients"]} clients, changes in float32 with a standard deviation of 0.01, and
their mean in float64 as the measure of errors.

Of a model of {power(cells[0]["weights"])} weights, a client of ours sends fewer bytes by {fewer or "nothing"}, and more
by {more or "nothing"}.

SecAgg+ is that of flwr {theirs["flwr"]}: its `SecAggPlusWorkflow` and its `secaggplus_mod`, with
`num_shares={theirs["num_shares"]}` and `reconstruction_threshold={theirs["reconstruction_threshold"]}`, which are those
of Flower's own example and the cheapest that it takes, and its defaults for the rest:
`clipping_range={theirs["clipping_range"]:g}`, `quantization_range={theirs["quantization_range"]}`,
`modulus_range={theirs["modulus_range"]}`, `max_weight={theirs["max_weight"]:g}`. Every client has
{theirs["num_examples"]} examples, the most that this weight allows, because that is best for its precision. Its errors
are in proportion to `clipping_range`, and the changes here are far smaller than that: whoever knows their range
beforehand, and sets it so, gets errors as small as ours. Ours is a task with `Ring({ours["bits"]},
fraction_bits={ours["fraction_bits"]})` and `security="{ours["security"]}"`, in which a
client retrieves its rows and submits.
"""


# ---- what was measured


def _table(result: Result) -> str:
    head = ("m", "a client changes", "", "bytes up", "bytes down", "client", "server, for each client", "largest error")
    rows = [
        (power(cell["weights"]), part(cell), name, *_figures(cell[side], cell[other]))
        for cell in result["cells"]
        for side, name, other in (("ours", "ours", "secaggplus"), ("secaggplus", "SecAgg+", "ours"))
    ]
    return f"""
## Measured

Of each pair of bytes and of times the smaller one is **bold**, where they differ by {100 * (ALIKE - 1):.0f} % or more.
Times are seconds of a processor: the median of {result["repeats"]} rounds, with the least and the greatest in
milliseconds. A MB has 10^6 bytes. A server of ours is the busier of the two, so both together take up to twice as much;
they also send each other {_between(result)} for each client.

{table(head, *rows)}

![Bytes and processor seconds, ours and SecAgg+]({NAME}.svg)
"""


def _figures(own: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    written: dict[str, Callable[[Mapping[str, float]], str]] = {
        "up": lambda of: size(of["median"]),
        "down": lambda of: size(of["median"]),
        "client": spread,
        "server": spread,
        "largest_error": lambda of: f"{of['greatest']:.1e}",
    }
    shown = {name: write(own[name]) for name, write in written.items()}
    compared = written.keys() - {"largest_error"}  # theirs follows the clipping range
    less = {name for name in compared if ALIKE * own[name]["median"] <= other[name]["median"]}
    return [f"**{figure}**" if name in less else figure for name, figure in shown.items()]


def _between(result: Result) -> str:
    least, most = (pick(cell["ours"]["between"]["median"] for cell in result["cells"]) for pick in (min, max))
    return f"{size(least)} to {size(most)}"


def _winners(result: Result) -> str:
    """Who takes less of what, in words that follow from the figures."""
    theirs = [_wins(cell, lambda ratio: 1 / ratio) for cell in result["cells"]]
    ours = [_wins(cell, lambda ratio: ratio) for cell in result["cells"]]
    return f"""
### Where SecAgg+ takes less

{chr(10).join(filter(None, theirs)) or "Nowhere among these."}

### Where ours takes less

{chr(10).join(filter(None, ours)) or "Nowhere among these."}

Neither list has differences below {100 * (ALIKE - 1):.0f} %.
"""


def _wins(cell: Cell, times: Callable[[float], float]) -> str:
    """A list's item of what one side takes less of; empty where there is none."""
    won = {called: times(ratio(cell, name)) for name, called in COMPARED.items()}
    told = ", ".join(f"{called} ({often:.3g} ×)" for called, often in won.items() if often >= ALIKE)
    return told and f"- m = {power(cell['weights'])}, {part(cell)}: {told}"


def _dropout(result: Result) -> str:
    cell = result["dropout"]
    ours, theirs, clients = cell["ours"], cell["secaggplus"], cell["clients"]
    return f"""
## When a client leaves

One of {clients} clients stops after it has begun: in SecAgg+ once it has shared its keys, in ours once it has retrieved
its rows (m = {power(cell["weights"])}, {part(cell)}). Both then give the mean of the {clients - 1} others, up to errors
of {theirs["largest_error"]["greatest"]:.1e} and {ours["largest_error"]["greatest"]:.1e}. For each client that stayed
the SecAgg+ server takes {time(theirs["server"]["median"])}, and a server of ours {time(ours["server"]["median"])}.

SecAgg+ asks the neighbours of the client that left for shares of its key, and removes its masks; where fewer neighbours
than the threshold are left, the round gives nothing, and the run goes on with the model it had. Every client has to
stay for four exchanges. In ours a client that leaves before it has submitted was never part of the sum, no other
client is asked for anything, and a client that has its receipt may go.
"""


def _sharing(result: Result) -> str:
    rows = result["sharing"]
    head = ("`num_shares`", "`reconstruction_threshold`", "client", "server, for each client", "bytes up")
    lines = [
        (
            str(row["num_shares"]),
            str(row["threshold"]),
            spread(row["secaggplus"]["client"]),
            spread(row["secaggplus"]["server"]),
            size(row["secaggplus"]["up"]["median"]),
        )
        for row in rows
    ]
    return f"""
## What more shares cost

Three shares are the fewest that flwr takes: then two neighbours of a client, together with the server, can open what it
sent. A client makes one mask for each share. With {rows[0]["clients"]} clients and m = {power(rows[0]["weights"])}:

{table(head, *lines)}
"""


def _clipping(result: Result) -> str:
    ours, theirs = result["clipping"]["ours"], result["clipping"]["secaggplus"]
    return f"""
## Values that do not fit

All clients send {_list(ours["sent"])}. The mean that came back:

{table(("", "mean"), ("ours", _list(ours["mean"])), ("SecAgg+", _list(theirs["mean"])))}

SecAgg+ clips every value to its `clipping_range`, and nothing says so, neither at the client nor in the result. In ours
a value that does not fit is refused before anything is sent. Of {ours["too_large"]:g} it says:

    {ours["refusal"]}
"""


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


# ---- what follows from how they work


PROTECTED = (
    ("", "SecAgg+", "ours"),
    ("servers", "one", "two, run by parties that do not collude"),
    (
        "a client's values are safe from",
        "the server, with fewer of the client's neighbours than the threshold",
        "either server, with any number of other clients",
    ),
    ("breaks when", "the server and as many neighbours as the threshold collude", "both servers collude"),
    (
        "which rows a client changed",
        "hidden, because it sends the whole model; sending fewer rows would tell which",
        "hidden, and it pays for `select` rows alone",
    ),
    ("which rows a client reads", "hidden, because it receives the whole model", "hidden, by private retrieval"),
    ("how many rows a client has", "hidden", "hidden up to `select`, which is public"),
    ("a client that sends malformed data", "not noticed", "refused, because trees are verified"),
    ("the sum", "known to the server", "known to both servers"),
)


def _protection(result: Result) -> str:
    flwr = result["settings"]["secaggplus"]["flwr"]
    masks = f"""
In flwr {flwr} a mask is what numpy's Mersenne Twister makes of a key that is folded to 32 bits: this run made two keys
of 256 bits whose 32-bit words have the same XOR, and they gave the same mask. That generator is not a cryptographic
one, and 32 bits can be tried one by one. The published protocol asks for a cryptographic generator; what a deployment
of this version protects is bounded by the one that it has.
"""
    return f"""
## What each protects

{table(*PROTECTED)}
{masks if result["masks_follow_32_bits"] else ""}"""


def _choice(_: Result) -> str:
    return """
## Which to take

- Clients change most of the model, there is one operator, and most clients can be trusted not to help it: SecAgg+. It
needs no second organisation. It is also the one to take where a figure above in which it takes less is the scarce one,
such as a server's processor.
- Clients change a few per cent of a large table, or rows of several weights, or have no room for the whole model: ours,
if there are two organisations that do not collude.
- The range of the values is not known beforehand, or sums have to be exact in fixed point: ours.
- Clients come and go, and cannot be asked again: ours.
- A model has a large table and a small dense head: ours, which takes the head as a dense block of the same round.
"""


def _method(result: Result) -> str:
    machine = result["machine"]
    return f"""
## How it was measured

    make secagg

One run of {result["seconds"]:,} s on {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]}.
Every figure on this page is in [{NAME}.json]({NAME}.json). Each side runs in a process and an environment of its own,
and they are asked in turns, one round at a time, on data that a seed makes.

- SecAgg+: flwr's workflow and mods exchange real messages through a grid that names, deflates and inflates every object
as flwr's HTTP grid does. Bytes are the lengths of flwr's own requests and responses. HTTP, TLS and the SuperLink's
database are left out, so these are the least that a deployment takes.
- Ours: the deployed parties, over channels in memory. Bytes are those on the wire, handshakes and encryption included,
and times include encryption, signatures and proofs.
- A client's time is that of the protocol, without training. In SecAgg+ it receives the model and sends a change for
every weight, zeros where it has none; in ours it retrieves the rows that it changes, and submits their changes.
- The largest error is over all weights and all rounds.
"""
