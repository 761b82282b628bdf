"""What a server tells of its messages: an event for each, which says how large it is and never what is in it."""

from __future__ import annotations

from fsl_async.wire.messages import Message, Refused
from parties.events import MessageReceived, MessageSent, Observer, RequestRefused
from parties.watch import Watch


class MessageTap:
    """Tells of every message that one server sends or receives.

    Args:
        server: its name.
        observe: takes the events.
        watch: takes each message that is sent, as a simulation's transcript shows it.

    Attributes:
        bytes_in: of all messages received, before framing.
        bytes_out: of those sent.
    """

    def __init__(self, server: str, observe: Observer, watch: Watch) -> None:
        self._server = server
        self._observe = observe
        self._watch = watch
        self.bytes_in = self.bytes_out = 0

    def received(self, sender: str, message: Message, size: int) -> None:
        """A message has come in; `size` is its bytes before framing."""
        self.bytes_in += size
        self._observe(MessageReceived(sender=sender, kind=type(message).__name__, size=size))

    def sent(self, receiver: str, message: Message, size: int, bulk: int) -> None:
        """A message has gone out; `size` is its bytes before framing, `bulk` those of them that are bulk data."""
        self.bytes_out += size
        self._watch(self._server, receiver, message, bulk)
        self._observe(MessageSent(receiver=receiver, kind=type(message).__name__, size=size))
        if isinstance(message, Refused):
            self._observe(RequestRefused(client=receiver, reason=message.reason, explanation=message.explanation))
