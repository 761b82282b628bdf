"""The wheel of the release before this one beside this one, as while both operators upgrade: docs/releases.md."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from parties.files.models import load_model
from tests import ROOT
from tests.support.serving import processes
from tests.support.shop import Basket, assert_equal, model_after
from tests.support.town import deploy

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
    deploy(tmp_path, NAMES, save_model="now-{}.npz")
    old = {"PYTHONPATH": str(wheel)}
    with processes() as start:
        servers = [start(tmp_path, "serve", "S0.toml"), start(tmp_path, "serve", "S1.toml", **old)]
        assert f"S1 runs release '{version}', and S0 '{VERSION}'" in servers[0].says("runs release")
        assert f"S0 runs release '{VERSION}', and S1 '{version}'" in servers[1].says("runs release")
        for name, with_what in zip(NAMES, (old, {}), strict=True):
            Basket(name).save(tmp_path / "update.npz")
            words = ("submit", f"{name}.toml", "--update", "update.npz")
            code, _, said = start(tmp_path, *words, **with_what).ended()
            assert code == 0, said
        for server in servers:
            server.says("round done")
            assert server.stop().code == 0
    for number in (0, 1):
        assert_equal(load_model(tmp_path / f"now-{number}.npz"), model_after(NAMES))
