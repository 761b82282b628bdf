"""`fsl-async preflight`: what can be checked before a party starts, and what to do about each problem."""

from parties.commands.preflight.findings import Finding, Verdict
from parties.commands.preflight.run import preflight

__all__ = ["Finding", "Verdict", "preflight"]
