"""Make a release in dist/: `make release`, `make release KEY=FILE` to sign it. docs/releases.md says how to check it.

Refused: a tree with changes that are not committed; a version that is not the changelog's newest, has no date there, or
is that of another commit's tag; installed packages other than those of constraints-hashes.txt; two builds that differ.

Written: the wheel and the source archive, each built twice and compared; constraints-hashes.txt; an SBOM (CycloneDX) of
the wheel and what it needs, and one of the image; SHA256SUMS of all of them; with a key, SHA256SUMS.sig.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

NAMESPACE = "fsl-async-release"
"""What a release's signature is for: a signature for anything else is none for a release."""

SECTION = re.compile(r"^## (\d+\.\d+\.\d+\S*)(?: \((.*)\))?$", re.MULTILINE)
PINNED = re.compile(r"^(\S+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def refuse(why: str) -> NoReturn:
    """End with a sentence."""
    sys.exit(f"no release is made: {why}")


def git(root: Path, *words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603, S607


def checked_version(root: Path) -> str:
    """The version of the tree, which is committed, the changelog's newest, dated, and no other commit's."""
    if changed := git(root, "status", "--porcelain"):
        refuse(f"the tree has changes that are not committed; commit them or put them aside:\n{changed}")
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    sections = dict(SECTION.findall((root / "CHANGELOG.md").read_text(encoding="utf-8")))
    if version not in sections:
        refuse(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`; write what is new in it")
    if version != next(iter(sections)):
        refuse(f"pyproject.toml has version {version}, and CHANGELOG.md's newest is {next(iter(sections))}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", sections[version]):
        refuse(f"CHANGELOG.md says `{sections[version]}` of {version}; put the day of the release there, YYYY-MM-DD")
    if git(root, "tag", "--list", f"v{version}") and git(root, "rev-list", "-1", f"v{version}") != head(root):
        refuse(f"the tag v{version} is of another commit; a version is released once")
    return version


def head(root: Path) -> str:
    """The commit."""
    return git(root, "rev-parse", "HEAD")


def built(root: Path, folder: Path, zone: str) -> dict[str, bytes]:
    """The wheel and the source archive of the commit, built in a folder of their own, with the commit's time."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", root, "archive", "HEAD"], check=True, capture_output=True).stdout  # noqa: S603, S607
    subprocess.run(["tar", "--extract", "--directory", source], check=True, input=archive)  # noqa: S603, S607
    variables = os.environ | {"SOURCE_DATE_EPOCH": git(root, "log", "-1", "--format=%ct"), "TZ": zone}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder / "dist")]
    subprocess.run(command, cwd=source, env=variables, check=True, capture_output=True)  # noqa: S603
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


def built_twice(root: Path) -> dict[str, bytes]:
    """The same, from two builds elsewhere, at another time of day and umask, that are equal bit for bit."""
    with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as elsewhere:
        first = built(root, Path(there) / "one", "UTC")
        before = os.umask(0o077)
        try:
            second = built(root, Path(elsewhere) / "another" / "place", "Asia/Tokyo")
        finally:
            os.umask(before)
    if different := {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}:
        refuse(f"two builds of one commit differ in {', '.join(sorted(different))}")
    return first


def components(hashes: str) -> list[dict[str, Any]]:
    """What is installed beside the product, as CycloneDX components; every one is as constraints-hashes.txt has it."""
    found = []
    for name, version, lines in PINNED.findall(hashes):
        if (installed := metadata.version(name)) != version:
            refuse(
                f"{name} {installed} is installed, and constraints-hashes.txt has {version}; `make clean`, then again"
            )
        entry: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
        }
        if licence := metadata.metadata(name).get("License-Expression"):
            entry["licenses"] = [{"expression": licence}]
        files = [{"alg": "SHA-256", "content": one} for one in re.findall(r"sha256:(\w+)", lines)]
        entry["externalReferences"] = [{"type": "distribution", "url": entry["purl"], "hashes": files}]
        found.append(entry)
    if not found:
        refuse("constraints-hashes.txt has no release in it; `make hashes` writes it")
    return found


def sbom(version: str, wheel: tuple[str, bytes], parts: list[dict[str, Any]], image: bool) -> bytes:
    """A CycloneDX 1.6 document of the wheel and what it needs, or of the image that is made of them."""
    product = {
        "type": "application",
        "bom-ref": f"pkg:pypi/fsl-async@{version}",
        "name": "fsl-async",
        "version": version,
        "purl": f"pkg:pypi/fsl-async@{version}",
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel[1]).hexdigest()}],
        "externalReferences": [{"type": "distribution", "url": wheel[0]}],
    }
    needs = [{"ref": product["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}]
    top: dict[str, Any] = product
    if image:
        top = {"type": "container", "bom-ref": "image", "name": "fsl-async", "version": version}
        base = {"type": "container", "bom-ref": "base", "name": "base", "description": "BASE, as the builder chose it"}
        parts = [base, product, *parts]
        needs.append({"ref": "image", "dependsOn": ["base", product["bom-ref"]]})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": top},
        "components": parts,
        "dependencies": needs,
    }
    return json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"


def release(root: Path, key: Path | None) -> Path:
    """Make the release of a checkout; returns the folder."""
    version = checked_version(root)
    hashes = (root / "constraints-hashes.txt").read_text(encoding="utf-8")
    parts = components(hashes)
    files = built_twice(root)
    files["constraints-hashes.txt"] = hashes.encode()
    (wheel,) = ((name, content) for name, content in files.items() if name.endswith(".whl"))
    files[f"fsl_async-{version}.cdx.json"] = sbom(version, wheel, parts, image=False)
    files[f"fsl_async-{version}-image.cdx.json"] = sbom(version, wheel, parts, image=True)
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    target = root / "dist"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name, content in files.items():
        (target / name).write_bytes(content)
    if key is not None:
        words = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(target / "SHA256SUMS")]
        subprocess.run(words, check=True)  # noqa: S603
    return target


if __name__ == "__main__":
    made = release(Path(__file__).resolve().parent.parent, Path(sys.argv[1]).expanduser() if sys.argv[1:] else None)
    print((made / "SHA256SUMS").read_text(encoding="utf-8"), end="")
    if not sys.argv[1:]:
        print(f"not signed: ssh-keygen -Y sign -f KEY -n {NAMESPACE} {made / 'SHA256SUMS'}")
