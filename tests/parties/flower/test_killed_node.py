"""A node's process is killed around its submission; asked again, it submits once and says what it would have said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`, in an environment of its own: `make learn` makes it")

from parties.flower import SubmodelMod
from parties.flower.servers import Servers
from tests import ROOT
from tests.support import flower_killed
from tests.support.flower_nodes import MAPPING, STATE, answered, app_of, deployed, message_for


def test_a_node_that_is_killed_and_asked_again_counts_once(tmp_path):
    with deployed(tmp_path) as deployment:
        servers = Servers.of(f"http://{deployment.port}", tmp_path / "coordinator.toml", deployment.token, 60)
        number = servers.open_round()
        for when in flower_killed.DEATHS:
            words = [
                sys.executable,
                "-m",
                "tests.support.flower_killed",
                str(tmp_path),
                deployment.port,
                str(number),
                when,
            ]
            assert subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == -9

        trained = []

        def train(state, partition):
            trained.append(partition)
            return flower_killed.train(state, partition)

        rows = {"embedding.weight": [1, 2]}
        mod = SubmodelMod(MAPPING, STATE, rows=lambda *_: rows, client=deployment.client, metrics={"train_loss"})
        for _ in range(2):
            assert dict(answered(app_of(mod, train), message_for(number), 0).content["metrics"]) == {"train_loss": 0.5}
        assert not trained, "the submission of the process that was killed is the one that counts"

        assert not answered(app_of(mod, train), message_for(number), 1).has_error()
        servers.close(number)
        assert servers.outcome(number).counted == 2
        change = servers.model()["words"] - STATE["embedding.weight"]
        assert change[1].tolist() == [1.0, 1.0], "the mean of two that added one each"
        assert abs(change).sum() == 2
