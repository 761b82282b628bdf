"""The operator's side of a server: its log, metrics and status page, and the port at which commands query it.

It sees a server only through `parties.events` and `parties.status`, and imports neither server nor client.
"""

from __future__ import annotations

from parties.operator.log import Form, Log
from parties.operator.observer import OperatorObserver, ObserverSetup, Place
from parties.operator.overview import OperatedProcess, OperatedTask
from parties.operator.server import serve_operator

__all__ = [
    "Form",
    "Log",
    "ObserverSetup",
    "OperatedProcess",
    "OperatedTask",
    "OperatorObserver",
    "Place",
    "serve_operator",
]
