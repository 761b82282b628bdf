"""Shut this process out of the files that it does not need, with Landlock (Linux 5.13 and later; landlock(7)).

Rule: it is called before any thread is started, for a thread that was there before is not confined. Nothing here needs
rights of root's, and nothing takes the confinement back.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on every processor."""

ASK_VERSION, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38

EXECUTE, READ_FILE, READ_FOLDER = 1 << 0, 1 << 2, 1 << 3

RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""By the version that brought the last of them: the rights over files that Landlock can take away."""

SCOPES: Final = 0b11
"""From version 6: abstract sockets of other processes, and signals to them."""

SYSTEM: Final = ("/usr", "/lib", "/lib64", "/proc", "/sys", "/dev/null", "/dev/urandom", "/etc/ld.so.cache")
NAMES: Final = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/localtime")
"""What programs and libraries read, and what finds addresses; in /proc, Landlock hides other processes' memory."""


def confine(files: Iterable[str], writable: str) -> bool:
    """Let this process read its programs, what the system's libraries ask for, and some files; and write in one folder.

    Returns whether the kernel does so: without Landlock, nothing has changed.
    """
    version = landlock_version()
    if version < 1 or len(os.listdir("/proc/self/task")) != 1:
        return False
    system = _system()
    handled = RIGHTS[max(since for since in RIGHTS if since <= version)]
    wanted = struct.pack("QQQ", handled, 0, SCOPES if version >= 6 else 0)
    rules = system(CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), 0)
    if rules < 0:
        return False
    try:
        for path in (*_programs(), *SYSTEM, *NAMES, *files):
            _allow(system, rules, path, EXECUTE | READ_FILE | READ_FOLDER)
        _allow(system, rules, writable, handled)
        alone = ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
        return bool(alone and system(RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def landlock_version() -> int:
    """Of this kernel's Landlock; less than 1 where it has none, or does not allow it to this process."""
    if sys.platform != "linux":
        return 0
    return int(_system()(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION))


def readable(files: Iterable[str]) -> tuple[str, ...]:
    """Those of some files that this process can read."""
    return tuple(path for path in files if _opens(path))


def _system() -> ctypes._NamedFuncPointer:
    return ctypes.CDLL(None, use_errno=True).syscall


def _programs() -> list[str]:
    """Where Python, packages and this project's own lie: no folder of sources, where keys may lie as well."""
    own = Path(__file__).parents[2]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [
        sys.prefix,
        sys.base_prefix,
        *packages,
        *(str(own / name) for name in ("parties", "transport", "fsl_async")),
    ]


def _allow(system: ctypes._NamedFuncPointer, rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights &= -1 if Path(path).is_dir() else EXECUTE | READ_FILE
        system(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _opens(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False
