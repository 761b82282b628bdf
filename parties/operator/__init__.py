"""What an operator sees of a server: its log, its metrics, its page, and what the commands ask it."""

from __future__ import annotations

from parties.operator.log import Form, Log
from parties.operator.observer import Operations, OperationsSetup
from parties.operator.overview import Overview
from parties.operator.server import serve_operator
from parties.operator.token import token_place

__all__ = ["Form", "Log", "Operations", "OperationsSetup", "Overview", "serve_operator", "token_place"]
