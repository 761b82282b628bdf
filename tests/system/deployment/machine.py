"""A machine of its own that boots systemd, to run services on: a container over this system's files.

Nothing that happens in it stays: what it writes lies in memory above the files of this system. It has no network but
its own loopback. Needs root, `systemd-nspawn` and overlay file systems.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SHELL = """
[Unit]
Description=What the test does on this machine
Wants=multi-user.target
After=basic.target network.target
SuccessAction=exit
FailureAction=exit

[Service]
Type=oneshot
ExecStart=/bin/bash -c '/bin/bash -eu /does.sh >/said.txt 2>&1'
"""


def missing() -> str:
    """What this system lacks to boot such a machine, in words; nothing where it lacks nothing."""
    if os.geteuid() != 0:
        return "booting a machine needs root"
    lacking = [name for name in ("systemd-nspawn", "/lib/systemd/systemd", "mount") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return "" if "overlay" in Path("/proc/filesystems").read_text() else "this kernel has no overlay file systems"


@dataclass
class Machine:
    """A machine that is off.

    Attributes:
        root: its file system, to be furnished before it boots.
        python: where it finds this Python.
    """

    root: Path
    python: Path = Path("/opt/python")

    def install(self, packages: list[Path], place: str) -> None:
        """Make a virtual environment at a place, with these packages, this one's dependencies and the command."""
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        home = self.root / place.lstrip("/")
        site = home / "lib" / name / "site-packages"
        site.mkdir(parents=True)
        (home / "bin").mkdir()
        (home / "pyvenv.cfg").write_text(f"home = {self.python}/bin\ninclude-system-site-packages = false\n")
        for link in ("python", "python3"):
            (home / "bin" / link).symlink_to(self.python / "bin" / name)
        for package in packages:
            shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        (site / "dependencies.pth").write_text("/opt/dependencies\n")
        program = home / "bin" / "fsl-async"
        program.write_text(f"#!{place}/bin/python3\nfrom parties.commands.application import main\n\nmain()\n")
        program.chmod(0o755)

    def boot(self, does: str, seconds: float = 900) -> tuple[int, str]:
        """Switch it on, do what a script says, and switch it off; returns how the script ended and what it said."""
        (self.root / "does.sh").write_text(does)
        (self.root / "etc/systemd/system/does.service").write_text(SHELL)
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--console=pipe"]
        command += [f"--directory={self.root}", f"--bind-ro={sys.base_prefix}:{self.python}"]
        command += [f"--bind-ro={sysconfig.get_path('purelib')}:/opt/dependencies"]
        command += ["--boot", "systemd.unit=does.service", "quiet"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        said = self.root / "said.txt"
        return done.returncode, said.read_text() if said.exists() else done.stdout + done.stderr


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine with this system's files; what is written goes to memory, and away at the end."""
    memory, root = folder / "memory", folder / "root"
    with ExitStack() as mounted:
        for place in (memory, root):
            place.mkdir()
        _mount(mounted, memory, "-t", "tmpfs", "none")
        for place in ("upper", "work"):
            (memory / place).mkdir()
        layers = f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work"
        _mount(mounted, root, "-t", "overlay", "-o", layers, "overlay")
        yield Machine(root)


def _mount(mounted: ExitStack, place: Path, *words: str) -> None:
    subprocess.run(["mount", *words, str(place)], check=True, capture_output=True)
    mounted.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True, capture_output=True)
