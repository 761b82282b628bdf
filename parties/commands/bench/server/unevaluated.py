"""A server's process that evaluates nothing: `… -m parties.commands.bench.server.unevaluated serve FILE`.

All else is as `fsl-async serve` has it. So a round can be measured whose submissions are names and digests alone, with
no bulk behind them; it does not end.
"""

from __future__ import annotations

from parties.commands.application import main
from parties.server.round.accumulation import Accumulator


def _nothing(self: Accumulator, client: str) -> None:
    """Instead of queueing what is not there."""
    del self, client


if __name__ == "__main__":
    Accumulator.put = _nothing  # type: ignore[method-assign]
    main()
