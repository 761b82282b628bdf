"""Write docs/configuration.md: every key of a party's file, as `parties.settings.party_file` declares it.

Run it with the environment's python (`make docs`); tests/parties/settings/test_configuration.py fails while the page is
out of date.
"""

from __future__ import annotations

import inspect
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.reading import PREFIX, Setting, StoreSetting, settings

PAGE = Path(__file__).with_name("configuration.md")

OPENING = f"""\
# Configuration

<!-- Written by docs/generate_configuration.py from the code; `make docs` writes it again. -->

Each party has one file in TOML. What all parties share, the task and the servers' addresses and public keys, is in
the task file, which `fsl-async peers` helps to write. `fsl-async preflight FILE` checks a party's file and everything
that it names.

- A path is relative to the file that names it.
- An unknown key is refused with the nearest known one, a value outside its range with file, key, value and range.
- Secrets are in files of their own, which only their owner can read; the configuration names these files. A key or a
  token in a configuration, or in a variable, is refused.
- An environment variable takes precedence over the file: `{PREFIX}LISTEN` over `listen`, `{PREFIX}ROUNDS_SECONDS` over
  `seconds` of `[rounds]`. A variable with this prefix that is not a setting is refused. `preflight` lists those in
  effect.
- On SIGHUP a running server reads its list of clients, its tokens and `log.level` again, and logs which other changes
  take effect at its next start. It also reads the list and the tokens whenever these files change.
"""

SERVER = """\
## A server's file

```toml
# s0.toml
server = 0
identity = "s0.key"
task = "task.toml"
clients = "clients.toml"
model = "model.npz"
listen = "0.0.0.0:7000"
store = "s0.sqlite"
checkpoints = "models"

[rounds]
clients = 100
seconds = 3600

[operator]
listen = "127.0.0.1:9470"
```
"""

CLIENT = """\
## A client's file

```toml
# alice.toml
task = "task.toml"
identity = "alice.key"
state = "alice.sqlite"
```

`fsl-async retrieve alice.toml …`, `fsl-async submit alice.toml …`, and in Python `connect("alice.toml")`.
"""

COLUMNS = "| key | is | default | meaning |\n|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    return "\n".join([OPENING, SERVER, *tables(ServerFile), CLIENT, *tables(ClientFile)]).rstrip() + "\n"


def tables(kind: type[msgspec.Struct]) -> list[str]:
    """A table for each section of a file."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    parts = []
    for section, members in groupby(settings(kind), key=lambda found: found.section):
        heading = f"### [{section}]\n\n{inspect.getdoc(types[section])}\n\n" if section else ""
        parts.append(heading + COLUMNS + "".join(row(found) for found in members))
    return parts


def row(found: Setting) -> str:
    """One setting's line."""
    return f"| `{found.name}` | {kind_of(found)} | {default_of(found)} | {found.about.description} |\n"


def kind_of(found: Setting) -> str:
    """What a value must be, with its unit."""
    unit = f", {found.about.unit}" if found.about.unit else ""
    if found.kind is Path:
        return "a path"
    if found.kind is StoreSetting:
        return 'a path, or "memory"'
    if found.about.is_address:
        return "host:port or [host]:port"
    return found.expected.replace("a whole number", "whole number").replace("a number", "number") + unit


def default_of(found: Setting) -> str:
    """What holds without it."""
    value: Any = found.default
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value == "":
        return "none"
    return f'"{value}"' if isinstance(value, str) else f"{value:,}".removesuffix(".0")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
