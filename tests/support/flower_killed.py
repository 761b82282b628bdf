"""A node of Flower that is asked once and dies: python -m tests.support.flower_killed FOLDER PORT ROUND WHEN."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from parties.flower import SubmodelMod
from parties.flower.mod import KeptReply
from tests.support.flower_nodes import MAPPING, STATE, Deployment, answered, app_of, message_for

KEEP = KeptReply.keep


def die(*words: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def keep_and_die(*words: Any) -> None:
    KEEP(*words)
    die()


DEATHS = {
    "before submitting": ("parties.flower.mod.KeptReply.keep", keep_and_die),
    "before replying": ("parties.flower.mod.metrics_reply", die),
}


def train(state: dict[str, Any], partition: int) -> dict[str, float]:
    state["embedding.weight"][1] += 1
    return {"train_loss": 0.5}


def main(folder: str, port: str, number: str, when: str) -> None:
    client = Deployment(Path(folder), port).client
    mod = SubmodelMod(
        MAPPING, STATE, rows=lambda *_: {"embedding.weight": [1, 2]}, client=client, metrics={"train_loss"}
    )
    with mock.patch(*DEATHS[when]):
        answered(app_of(mod, train), message_for(int(number)), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
