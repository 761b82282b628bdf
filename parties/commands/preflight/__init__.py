"""`fsl-async preflight`: everything that can be known before a party starts, each with what to do about it."""

from parties.commands.preflight.findings import Finding, Verdict, passed
from parties.commands.preflight.run import preflight

__all__ = ["Finding", "Verdict", "passed", "preflight"]
