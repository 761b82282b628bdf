"""A release: made twice alike, refused where it is none, and checked word for word as docs/releases.md says."""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from parties.client import state
from parties.commands import report
from parties.operator import answers
from parties.storage import sqlite_file
from tests import ROOT
from tests.support import guide
from tests.system.deployment.hosts import dependencies

pytest.importorskip("hatchling", reason="hatchling builds releases; it is in the extra `test`")
for program in ("git", "ssh-keygen"):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing", allow_module_level=True)

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CHECK, INSTALL, AGAIN = guide.blocks("docs/releases.md", "sh")
QUIET = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
AUTHOR = {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | QUIET | AUTHOR | variables
    words = ["bash", "-e", "-c", command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)


def done(command: str, folder: Path, **variables: str) -> str:
    ended = run(command, folder, **variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A clone whose changelog has a date, and a throwaway key beside it."""
    folder: Path = tmp_path_factory.mktemp("releases")
    ours, theirs = ["--cached", "--others", "--exclude-standard"], folder / "checkout"
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *ours], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("these sources are no clone, so no release is made of them")
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists() and not name.startswith("docs/paper/"):
            (theirs / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, theirs / name)
    heading = re.compile(rf"^## {re.escape(VERSION)}.*$", re.MULTILINE)
    log = theirs / "CHANGELOG.md"
    log.write_text(heading.sub(f"## {VERSION} (2026-01-31)", log.read_text()), encoding="utf-8")
    done("git init --quiet && git add --all && git commit --quiet --message first", theirs)
    done("ssh-keygen -q -t ed25519 -N '' -f key; ssh-keygen -q -t ed25519 -N '' -f other", folder)
    return theirs


@pytest.fixture(scope="module")
def released(checkout) -> Path:
    """The folder of a signed release."""
    done(f"{sys.executable} docs/make_release.py ../key", checkout)
    return checkout / "dist"


@pytest.fixture
def arrived(released, tmp_path) -> Path:
    """The release as an operator has it, beside the line with the key of whoever signs."""
    folder = shutil.copytree(released, tmp_path / "arrived")
    public = (released.parent.parent / "key.pub").read_text()
    line = re.search(r"^ {4}(releases namespaces=\S+) ssh-ed25519 AAAA…$", page(), re.MULTILINE)[1]
    (folder / "signers").write_text(f"{line} {public}")
    return folder


def page() -> str:
    return (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")


# ---- making


def test_a_release_has_the_files_that_the_page_lists(released):
    listed = re.findall(r"`([\w.-]+)`", "".join(re.findall(r"^\| `.*?\|", page(), re.MULTILINE)[:5]))
    assert {path.name for path in released.iterdir()} == {name.replace("VERSION", VERSION) for name in listed}


@pytest.mark.slow
def test_a_release_is_the_same_bit_for_bit_from_another_clone_a_year_later(released, checkout, tmp_path):
    done(f"git clone --quiet {checkout} {tmp_path}/clone", tmp_path)
    for path in (tmp_path / "clone").rglob("*"):
        os.utime(path, (2e9, 2e9))
    done(f"{sys.executable} docs/make_release.py", tmp_path / "clone", PYTHONHASHSEED="7")
    assert (tmp_path / "clone/dist/SHA256SUMS").read_bytes() == (released / "SHA256SUMS").read_bytes()


def test_what_was_there_when_it_was_made_is_in_it_and_nothing_else(released, checkout):
    (archive,) = released.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()} - {"PKG-INFO", ".gitignore"}
    tracked = set(done("git ls-files", checkout).splitlines())
    assert packed <= tracked
    assert {"README.md", "SECURITY.md", "constraints-hashes.txt", "tests/test_release.py"} <= packed
    (wheel,) = released.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        times = {one.date_time for one in files.infolist()}
    assert len(times) == 1


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("echo >> README.md", "changes that are not committed"),
        ("touch new.txt", "changes that are not committed"),
        ("sed -i 's/^## 0.*/## Later/' CHANGELOG.md; git commit -qam x", "has no section `## "),
        (f"sed -i 's/^## {VERSION}.*/## {VERSION} (unreleased)/' CHANGELOG.md; git commit -qam x", "put the day"),
        (
            f"sed -i 's/^## {VERSION}/## 99.0.0 (2030-01-01)\\n\\n&/' CHANGELOG.md; git commit -qam x",
            "newest is 99.0.0",
        ),
        (f"git tag v{VERSION}; git commit -q --allow-empty -m x", "a version is released once"),
        ("sed -i 's/^trio==.*/trio==0.0.1 \\\\/' constraints-hashes.txt; git commit -qam x", "has 0.0.1"),
    ],
    ids=["changed", "untracked", "no section", "no date", "downgrade", "tag", "another release installed"],
)
def test_no_release_is_made_of_a_tree_that_is_none(spoil, told, checkout, tmp_path):
    done(f"git clone --quiet {checkout} clone", tmp_path)
    clone = tmp_path / "clone"
    done(spoil, clone)
    ended = run(f"{sys.executable} docs/make_release.py", clone)
    assert ended.returncode == 1
    assert told in ended.stderr, ended.stderr
    assert not (clone / "dist").exists()


def test_two_builds_that_differ_are_refused():
    program = runpy.run_path(str(ROOT / "docs" / "make_release.py"))
    builds = iter([{"a.whl": b"1", "a.tar.gz": b"1"}, {"a.whl": b"2", "a.tar.gz": b"1"}])
    program["built_twice"].__globals__["built"] = lambda *_: next(builds)
    with pytest.raises(SystemExit, match=r"two builds of one commit differ in a\.whl"):
        program["built_twice"](ROOT)


# ---- what is in it


def test_the_bills_name_everything_that_is_needed_with_its_hashes(released):
    needed = runpy.run_path(str(ROOT / "docs" / "generate_hashes.py"))["needed"]
    here = needed("3.11", "x86_64") | needed("3.14", "aarch64")
    (wheel,) = released.glob("*.whl")
    for name in (f"fsl_async-{VERSION}.cdx.json", f"fsl_async-{VERSION}-image.cdx.json"):
        bill = json.loads((released / name).read_text())
        assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
        libraries = {one["name"]: one for one in bill["components"] if one["type"] == "library"}
        assert libraries.keys() == here
        for one in libraries.values():
            assert one["version"] == metadata.version(one["name"])
            assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
            assert one["externalReferences"][0]["hashes"]
        references = {one["bom-ref"] for one in [bill["metadata"]["component"], *bill["components"]]}
        assert {ref for one in bill["dependencies"] for ref in (one["ref"], *one["dependsOn"])} <= references
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert digest in {
            one["content"]
            for part in (bill["metadata"]["component"], *bill["components"])
            for one in part.get("hashes", ())
        }


def test_the_hashes_are_of_what_the_constraints_have_and_of_all_that_is_needed():
    program = runpy.run_path(str(ROOT / "docs" / "generate_hashes.py"))
    text = program["HASHES"].read_text()
    entries = dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))
    wanted = set().union(
        *(program["needed"](python, one) for python in program["PYTHONS"] for one in program["PROCESSORS"])
    )
    assert entries.keys() == wanted
    assert entries.items() <= program["pinned"]().items(), "constraints.txt has changed: `make hashes`"
    for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
        assert hashes
        assert len(hashes) == len(set(hashes)) == entry.count("--hash")
    assert text.startswith(program["OPENING"])
    assert not re.search(r"://|index-url|find-links", text), "no registry is named"


def test_the_version_stands_in_one_place():
    assert metadata.version("fsl-async") == VERSION
    named = [
        *re.findall(r"fsl_async-([\d.]+)-py3", (ROOT / "docs" / "deploy.md").read_text()),
        *re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[:1],
    ]
    assert set(named) == {VERSION}
    for package in ("fsl_async", "transport", "parties"):
        for path in (ROOT / package).rglob("*.py"):
            assert "__version__" not in path.read_text(), path


def test_the_numbers_that_parties_must_share_are_those_on_the_page():
    from fsl_async import config
    from transport import preamble

    rows = [
        re.split(r"\s*\|\s*", line)
        for line in page().partition("## Which releases")[2].splitlines()
        if line.startswith("|")
    ]
    numbers = [int(row[3]) for row in rows if row[3].isdigit()]
    assert numbers == [
        preamble.PROTOCOL_VERSION,
        config.VERSION,
        sqlite_file.FORMAT,
        state.VERSION,
        answers.VERSION,
        report.VERSION,
    ]


# ---- checking


def test_a_release_that_is_as_it_was_signed_passes(arrived):
    told = done(CHECK, arrived)
    assert 'Good "fsl-async-release" signature' in told
    assert told.count(": OK") == len((arrived / "SHA256SUMS").read_text().splitlines()) == 5


REFUSED = {
    "another key": (
        "rm SHA256SUMS.sig; ssh-keygen -q -Y sign -f {keys}/other -n fsl-async-release SHA256SUMS",
        "Could not verify signature",
    ),
    "another purpose": (
        "rm SHA256SUMS.sig; ssh-keygen -q -Y sign -f {keys}/key -n file SHA256SUMS",
        "Could not verify signature",
    ),
    "not signed": ("rm SHA256SUMS.sig", "No such file"),
    "changed hashes": ("sed -i 's/^./0/;1s/^./1/' SHA256SUMS", "incorrect signature"),
    "a changed wheel": ("echo >> fsl_async-*.whl", "FAILED"),
    "a missing file": ("rm constraints-hashes.txt", "FAILED open or read"),
    "changed constraints": ("sed -i 's/sha256:./sha256:0/' constraints-hashes.txt", "FAILED"),
}


def test_a_release_that_was_changed_is_refused(arrived, released, tmp_path):
    for case, (spoil, told) in REFUSED.items():
        spoilt = shutil.copytree(arrived, tmp_path / case)
        done(spoil.format(keys=released.parent.parent), spoilt)
        ended = run(CHECK, spoilt)
        assert ended.returncode != 0, case
        assert told in ended.stdout + ended.stderr, ended.stdout + ended.stderr
        assert case == "not signed" or f"`{told.removesuffix(' open or read')}`" in page()


@pytest.fixture
def offline(tmp_path) -> dict[str, str]:
    """Where pip finds what is needed, without an index: installed already."""
    return {
        "PYTHONPATH": str(dependencies(tmp_path / "dependencies")),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.mark.slow
def test_what_was_checked_is_installed_and_nothing_older_afterwards(arrived, offline):
    done(INSTALL, arrived, **offline)
    assert (arrived / "no-older.txt").read_text() == f"fsl-async>={VERSION}\n"
    done(INSTALL, arrived, **offline)
    (wheel,) = arrived.glob("*.whl")
    older(wheel, "0.0.9")
    ended = run(INSTALL, arrived, **offline)
    assert ended.returncode != 0
    assert "ResolutionImpossible" in ended.stderr or "conflicting dependencies" in ended.stderr
    assert done("fsl/bin/fsl-async --version", arrived, **offline).strip() == VERSION


def older(wheel: Path, version: str) -> None:
    """Put a wheel of an older version in the place of this one."""
    with (
        zipfile.ZipFile(wheel) as there,
        zipfile.ZipFile(wheel.with_name(wheel.name.replace(VERSION, version)), "w") as new,
    ):
        for one in there.infolist():
            content = there.read(one)
            if one.filename.endswith("/METADATA"):
                content = content.replace(f"Version: {VERSION}\n".encode(), f"Version: {version}\n".encode())
            if not one.filename.endswith("/RECORD"):
                new.writestr(one.filename.replace(VERSION, version), content)
        new.writestr(f"fsl_async-{version}.dist-info/RECORD", "")
    wheel.unlink()


@pytest.mark.slow
def test_a_wheel_that_does_not_fit_its_hash_is_not_installed(tmp_path, offline):
    """pip itself, on a package of nothing."""
    name = "nothing_at_all-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        head = "nothing_at_all-1.0.dist-info"
        wheel.writestr(f"{head}/METADATA", "Metadata-Version: 2.1\nName: nothing-at-all\nVersion: 1.0\n")
        wheel.writestr(f"{head}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{head}/RECORD", "")
    good = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    command = f"{sys.executable} -m pip install --find-links . --target made --require-hashes --requirement list.txt"
    for line, told in [
        (f"nothing-at-all==1.0 --hash=sha256:{'0' * 64}", "DO NOT MATCH THE HASHES"),
        ("nothing-at-all==1.0", "Hashes are required"),
    ]:
        (tmp_path / "list.txt").write_text(line)
        ended = run(command, tmp_path)
        assert ended.returncode != 0
        assert told in ended.stderr
        assert f"`{told}`" in page()
        assert not (tmp_path / "made").exists()
    (tmp_path / "list.txt").write_text(f"nothing-at-all==1.0 --hash=sha256:{good}")
    done(command, tmp_path)


def test_what_is_built_again_is_compared_with_what_was_released():
    assert AGAIN.splitlines()[1:] == ["make release", "diff dist/SHA256SUMS SHA256SUMS"]
    assert "docs/make_release.py $(KEY)" in (ROOT / "Makefile").read_text()


# ---- the image


def test_the_image_is_of_a_base_that_is_named_by_digest_and_runs_read_only(released, tmp_path):
    base = os.environ.get("TEST_BASE_IMAGE")
    builder = next(
        (name for name in ("podman", "docker") if shutil.which(name) and run(f"{name} info", ROOT).returncode == 0),
        None,
    )
    if builder is None or base is None:
        pytest.skip("no builder of images answers here, or TEST_BASE_IMAGE names no base, NAME@sha256:…")
    file = ROOT / "examples" / "deployment" / "Containerfile"
    shutil.copytree(released, tmp_path / "dist")
    shutil.copy(released / "constraints-hashes.txt", tmp_path)
    build = f"{builder} build --file {file} --tag fsl-async-test --build-arg BASE="
    assert run(f"{build}{base.partition('@')[0]} .", tmp_path).returncode != 0
    done(f"{build}{base} .", tmp_path)
    shut = "--rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges"
    assert done(f"{builder} run {shut} fsl-async-test --version", tmp_path).strip() == VERSION
    assert done(f"{builder} run {shut} --entrypoint id fsl-async-test -u", tmp_path).strip() == "10001"
