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

from parties.settings.host_file import WRITTEN, TaskTable
from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.reading import PREFIX, Setting, StoreSetting, settings

PAGE = Path(__file__).with_name("configuration.md")

OPENING = f"""\
# Configuration

<!-- Written by docs/generate_configuration.py from the code; `make docs` writes it again. -->

Each party has one file in TOML. The task file is the same for all: it has the task, and the servers' addresses and
public keys, which `fsl-async peers` writes into it. `fsl-async preflight FILE` checks a party's file and everything
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

SEVERAL = """\
### [[tasks]]

A server with several tasks has one process, one address and one identity for all of them. The keys of one task stand in
a table of its own, {own}, with the same defaults; everything else stands at the top, for all tasks.

```toml
# s0.toml
server = 0
identity = "s0.key"
listen = "0.0.0.0:7000"

[operator]
listen = "127.0.0.1:9470"

[[tasks]]
task = "shop/task.toml"
clients = "shop/clients.toml"
model = "shop/model.npz"
store = "shop/s0.sqlite"

[[tasks]]
task = "town/task.toml"
clients = "town/clients.toml"
model = "town/model.npz"
store = "town/s0.sqlite"
memory_bytes = 1_000_000_000

[tasks.rounds]
seconds = 3600
```

- `memory_bytes` is {memory}.
- The task files name the same two servers, at the same addresses with the same keys; each task has a name and a digest
  of its own. `clients` and `model` may be the same file for several tasks; {written} may not.
- Environment variables override what stands at the top. One that would override a key of a task is refused: it would
  hold for every task. Without `[[tasks]]`, all keys stand at the top, and variables override each.
- On SIGHUP a running server reads the tables again: new ones start, those that are gone are drained, and changed ones
  take effect when the task is drained and started again ([operating](operating.md#several-tasks)).
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
    return "\n".join([OPENING, SERVER, *tables(ServerFile), several(), CLIENT, *tables(ClientFile)]).rstrip() + "\n"


def several() -> str:
    """The section about several tasks; its keys are those of the server's own file."""
    keys = {found.section or found.name: bool(found.section) for found in settings(TaskTable)}
    own = ", ".join(f"`[tasks.{key}]`" if table else f"`{key}`" for key, table in keys.items())
    (memory,) = (found.about.description for found in settings(TaskTable) if found.name == "memory_bytes")
    written = " and ".join(", ".join(f"`{key}`" for key in WRITTEN).rsplit(", ", 1))
    return SEVERAL.format(own=own, memory=memory, written=written)


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
