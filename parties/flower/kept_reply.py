"""What a node replied for a round, kept on its disk: asked again for the same round, it says the same.

A client submits once to a round. If its process is killed after that and before Flower has its reply, or if Flower asks
twice, there is nothing left to train; so the metrics are on disk before the submission is.
"""

from __future__ import annotations

import json
from pathlib import Path

from parties.files.disk import refused, replaced_by

__all__ = ["KeptReply"]


class KeptReply:
    """The metrics of one client's last submission.

    Args:
        client: the client's own file; the reply is kept beside it, as `alice.reply.json` beside `alice.toml`.
    """

    def __init__(self, client: Path) -> None:
        self._path = client.with_suffix(".reply.json")

    def keep(self, number: int, metrics: dict[str, int | float]) -> None:
        """Keep the metrics of a round, instead of the last one's.

        Raises:
            StorageError: they cannot be written.
        """
        try:
            with replaced_by(self._path) as file:
                file.write(json.dumps({"round": number, "metrics": metrics}).encode())
        except OSError as error:
            raise refused(self._path, error) from error

    def of(self, number: int) -> dict[str, int | float]:
        """The metrics of a round; none where they are not known."""
        try:
            kept = json.loads(self._path.read_bytes())
            if kept["round"] != number:
                return {}
            return {
                str(name): value
                for name, value in kept["metrics"].items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}
