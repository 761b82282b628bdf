"""An example of every message, made from its own declaration."""

import typing
from typing import Any

import msgspec

from fsl_async.wire import messages

EXAMPLES: dict[Any, Any] = {
    bool: True,
    int: 5,
    str: "text",
    bytes: b"\x07" * 32,
    messages.Digest: b"\x07" * 32,
    messages.DigestIfAny: b"\x08" * 32,
    messages.Key: b"\x07" * 16,
    messages.Signature: b"\x07" * 64,
    messages.ClientName: "alice",
    tuple[messages.Digest, messages.Digest]: (b"\x01" * 32, b"\x02" * 32),
}


def example_of(kind: type[messages.Message]) -> messages.Message:
    """A message of that kind, its fields filled by their types."""
    exact, types = typing.get_type_hints(kind, include_extras=True), typing.get_type_hints(kind)
    values = {}
    for field in msgspec.structs.fields(kind):
        hint = exact[field.name] if exact[field.name] in EXAMPLES else types[field.name]
        values[field.name] = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Literal else EXAMPLES[hint]
    return kind(**values)
