"""The wheel of the release before this one beside this one, as while both operators upgrade: docs/releases.md."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from parties.settings.writing import free_addresses
from tests import ROOT
from tests.support.serving import processes
from tests.support.shop import Basket, deploy, model, plain_sum, write_servers

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = ("anna", "ben")


def run(*words: str, folder: Path) -> str:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def other(tmp_path) -> tuple[str, Path]:
    """The newest release before this one of the same minor version, unpacked; if there is none, this one, renamed."""
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are no clone, so there is no other release of them")
    source = tmp_path / "source"
    run("git", "clone", "--quiet", str(ROOT), str(source), folder=tmp_path)
    tags = run(
        "git", "tag", "--list", f"v{VERSION.rpartition('.')[0]}.*", "--sort=-v:refname", "--merged", folder=source
    )
    if earlier := [tag for tag in tags.split() if tag != f"v{VERSION}"]:
        run("git", "checkout", "--quiet", earlier[0], folder=source)
        version = earlier[0][1:]
    else:
        file, version = source / "pyproject.toml", f"{VERSION.rpartition('.')[0]}.99"
        file.write_text(file.read_text().replace(f'version = "{VERSION}"', f'version = "{version}"'))
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", folder=source)
    (wheel,) = source.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "other")
    return version, tmp_path / "other"


@pytest.mark.slow
def test_servers_and_clients_of_two_releases_sum_exactly_and_say_which_is_which(other, tmp_path):
    version, wheel = other
    addresses = free_addresses(2)
    deploy(tmp_path, addresses, NAMES)
    write_servers(tmp_path, addresses, 'save_model = "now-{0}.npz"\n')
    old = {"PYTHONPATH": str(wheel)}
    with processes() as start:
        servers = [start(tmp_path, "serve", "S0.toml"), start(tmp_path, "serve", "S1.toml", **old)]
        assert f"S1 runs release '{version}', and S0 '{VERSION}'" in servers[0].says("runs release")
        assert f"S0 runs release '{VERSION}', and S1 '{version}'" in servers[1].says("runs release")
        for name, with_what in zip(NAMES, (old, {}), strict=True):
            (tmp_path / f"{name}.toml").write_text(f'task = "task.toml"\nidentity = "{name}.key"\n')
            basket = Basket(name)
            update = {"items.rows": basket.rows, "items.values": basket.values, "head": basket.head}
            np.savez(tmp_path / "update.npz", **update)
            words = ("submit", f"{name}.toml", "--update", "update.npz")
            code, _, said = start(tmp_path, *words, **with_what).ended()
            assert code == 0, said
        for server in servers:
            server.says("round done")
            server.child.terminate()
            assert server.ended()[0] == 0
    added = plain_sum(NAMES)
    for number in (0, 1):
        with np.load(tmp_path / f"now-{number}.npz") as now:
            for block, before in model().items():
                assert np.array_equal(now[block], (before + added[block]).astype(np.float32))
