"""`preflight` and `doctor`: whether a party can start, what must be repaired first; what lies in a server's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsl_async.counting import count_of
from parties.commands.report import ExitCode, Report, reported

if TYPE_CHECKING:
    from parties.commands.preflight import Finding


@reported("preflight")
async def preflight(report: Report, config: Path) -> ExitCode:
    """Check whether a server or a client can start: its file, all files that this names, the host, the other parties.

    The exit code is 0 if it can start, otherwise the code that the server or client would end with.

    Parameters
    ----------
    config:
        The server's or the client's TOML file.
    """
    from parties.commands import preflight as checks

    return _tell(report, config, await checks.preflight(config))


@reported("doctor")
async def doctor(report: Report, folder: Path) -> ExitCode:
    """Say what lies in a server's folder, what belongs to what, and what a start would say. Nothing is changed.

    The exit code is 0 if nothing is wrong, otherwise the code with which a server ends because of the first thing.

    Parameters
    ----------
    folder:
        The folder with the server's TOML file, or that file.
    """
    from parties.commands import doctor as examining

    return _tell(report, folder, await examining.doctor(folder))


def _tell(report: Report, config: Path, findings: list[Finding]) -> ExitCode:
    code = next((finding.code for finding in findings if finding.code), ExitCode.OK)
    report.result(_table(config, findings), {"passed": not code, "findings": _plain(findings)})
    return code


def _table(config: Path, findings: list[Finding]) -> str:
    width = max(len(finding.check) for finding in findings)
    lines = [f"{finding.verdict.value} {finding.check.ljust(width)}  {finding.text}" for finding in findings]
    return "\n".join([*lines, "", _ending(config, findings)])


def _ending(config: Path, findings: list[Finding]) -> str:
    bad = [finding for finding in findings if finding.code]
    doubtful = sum(finding.verdict.name == "DOUBTFUL" for finding in findings)
    if bad:
        text = bad[0].text
        return f"FAILED: {text}" if text.startswith(str(config)) else f"FAILED: {config}: {text}"
    return f"PASSED: {config}" + (f", with {count_of(doubtful, 'warning', 'warnings')} (!)" if doubtful else "")


def _plain(findings: list[Finding]) -> list[dict[str, str]]:
    return [
        {"check": finding.check, "verdict": finding.verdict.name.lower(), "words": finding.text} for finding in findings
    ]
