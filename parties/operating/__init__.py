"""What an operator sees of a server: its log, its metrics, its page, and what the commands ask it."""

from __future__ import annotations

from parties.operating.access import token_place
from parties.operating.log import Form, Log
from parties.operating.operations import Operations, OperationsSetup
from parties.operating.overview import Overview
from parties.operating.port import serve_operator

__all__ = ["Form", "Log", "Operations", "OperationsSetup", "Overview", "serve_operator", "token_place"]
