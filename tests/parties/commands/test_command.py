"""The command line: one JSON object on stdout, one line on stderr, exit codes that a page explains."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio
from cyclopts import App
from rich.console import Console

import transport.errors
from fsl_async.errors import ChannelError, FslError, MisuseError, PeerViolationError, StorageError
from parties import RequestDeniedError, RoundClosedError
from parties.commands.application import app, main
from parties.commands.client_options import rows_from, told_what_it_waits_for
from parties.commands.report import ExitCode, Report, exit_code
from parties.settings.writing import to_toml
from tests import ROOT
from tests.support.shop import SERVER_FILE
from tests.support.town import deploy
from transport import RefusedError, UnreachableError


def words_of(group: App, *before: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups included."""
    for name in group:
        if not name.startswith("-"):
            if group[name].default_command:
                yield (*before, name)
            yield from words_of(group[name], *before, name)


COMMANDS = sorted(words_of(app))


@pytest.fixture
def run(in_process, monkeypatch, tmp_path):
    """Runs the command in this process, in an empty folder; gives its exit code and what it said where."""
    monkeypatch.chdir(tmp_path)
    return in_process


def test_the_commands_are_these():
    assert [" ".join(words) for words in COMMANDS] == [
        "backup", "bench", "clients add", "clients list", "clients revoke", "demo", "doctor", "enrol",
        "keygen", "log-level", "outcome", "peers add", "peers list", "peers revoke", "plan", "preflight",
        "restore", "resume", "retrieve",
        "rounds abort", "rounds close", "rounds draw", "rounds list", "rounds show", "scheduler", "serve", "status",
        "submit", "tasks drain", "tasks list", "tasks start", "unite", "worker",
    ]  # fmt: skip


# ---- help and misuse


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_page_of_help_that_names_the_format(run, command):
    code, out, error = run(*command, "--help")
    assert code == ExitCode.OK
    assert out.startswith(f"Usage: fsl-async {' '.join(command)}")
    assert "--format" in out
    assert error == ""


def test_a_help_text_breaks_its_lines_at_the_terminals_width_alone(run, monkeypatch):
    monkeypatch.setattr(app, "console", Console(width=600))  # the one that other tests have used has another width
    _, out, _ = run("submit", "--help")
    (told,) = (line for line in out.splitlines() if "  --update PATH" in line)
    assert "An .npz file, with the arrays" in told
    assert "would reveal something about those rows." in told
    assert "Parameters ---" not in run("plan", "--help")[1]


def test_without_words_the_command_tells_what_there_is(run):
    code, out, _ = run()
    assert code == ExitCode.OK
    for command, *_ in COMMANDS:
        assert f" {command} " in out


def test_the_version_is_the_distributions(run):
    code, out, _ = run("--version")
    assert (code, out.strip()) == (ExitCode.OK, importlib.metadata.version("fsl-async"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["kegen", "x"], "keygen"),
        (["keygen"], "path"),
        (["keygen", "x.key", "--nme", "x"], "--name"),
        (["keygen", "x.key", "y.key"], "y.key"),
        (["demo", "--clients", "many"], "many"),
        (["demo", "--format", "xml"], "json"),
        (["demo", "--transport", "pigeon"], "memory"),
        (["submit", "task.toml"], "--update"),
        (["--nonsense"], "--nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_end_with_code_2_and_one_line(run, words, told, tmp_path):
    code, out, error = run(*words)
    assert code == ExitCode.USAGE == 2
    assert out == ""
    assert error.count("\n") == 1
    assert error.startswith("fsl-async: ")
    assert told in error
    assert not re.search(r"[^.]\.;", error)
    named = words[0] if (words[0],) in COMMANDS else ""
    assert f"`{' '.join(filter(None, ['fsl-async', named, '--help']))}` shows what there is" in error
    assert list(tmp_path.iterdir()) == []
    for wanting in (["--format", "json"], ["--format=json"]):
        if "--format" in words:
            break
        ended, out, same = run(*words, *wanting)
        assert (ended, same) == (code, error)
        envelope = json.loads(out)
        assert (envelope["version"], envelope["command"]) == (1, named)
        assert envelope["error"]["code"] == code
        assert envelope["error"]["kind"] == "UsageError"
        assert f"fsl-async: {envelope['error']['message']}\n" == error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["restore", "S0.toml", "folder"], "folder is not a file; name what `fsl-async backup` wrote"),
        (["restore", "S0.toml", "none"], "none is not there; name what `fsl-async backup` wrote"),
        (["clients", "add", "clients.toml"], "clients add: .pub files, or --name, --channel and --statement, expected"),
        (["clients", "add", "clients.toml", "--name", "x"], "clients add: the new client: channel"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_values_are_named_once_and_for_what_they_are(run, tmp_path, words, told):
    (tmp_path / "folder").mkdir()
    (tmp_path / "S0.toml").write_text(to_toml(SERVER_FILE | {"store": "S0.sqlite"}))
    code, _, error = run(*words)
    assert code == ExitCode.MISUSE
    assert error.startswith(f"fsl-async {words[0]}")
    assert f": {told}" in f": {error.removeprefix('fsl-async ')}"


LONG = "x" * 300  # the system refuses to look for it, as it does in a folder of another user


@pytest.mark.parametrize(
    "words",
    [
        ["backup", "S0.toml", LONG],
        ["backup", "S0.toml", "new"],
        ["clients", "list", "S0.toml", "--enrolled"],
        ["doctor", LONG],
        ["doctor", "S0.toml"],
        ["enrol", LONG, "task.toml"],
        ["keygen", LONG],
        ["outcome", "anna.toml"],
        ["preflight", "S0.toml"],
        ["restore", "S0.toml", LONG],
        ["restore", "S0.toml", "S0.toml"],
    ],
    ids=lambda words: f"{words[0]} {words[-1][:9]}",
)
def test_a_file_that_the_system_does_not_look_for_is_named(run, tmp_path, words):
    deploy(tmp_path, ["anna"], ["127.0.0.1:1", "127.0.0.1:2"])
    (tmp_path / "S0.toml").write_text(to_toml(SERVER_FILE | {"store": LONG}))
    (tmp_path / "anna.toml").write_text(f'task = "task.toml"\nidentity = "anna.key"\nstate = "{LONG}"\n')
    code, out, error = run(*words)
    assert code == ExitCode.STORAGE
    assert f"{LONG} cannot be reached: File name too long" in out + error


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("@none", "none cannot be read: No such file or directory"),
        ("@.", ". cannot be read: Is a directory"),
        ("1,x", "a list as in 3,17,99 or @FILE with a JSON list expected, got '1,x'"),
    ],
)
def test_rows_that_cannot_be_read_say_why(option, told):
    with pytest.raises(MisuseError, match=re.escape(told)):
        rows_from(option)


# ---- what commands say


def test_keygen_writes_both_files_and_says_what_it_wrote(run, tmp_path):
    code, out, error = run("keygen", "alice.key", "--format", "json")
    assert (code, error) == (ExitCode.OK, "")
    envelope = json.loads(out)
    assert {key: envelope[key] for key in ("version", "command")} == {"version": 1, "command": "keygen"}
    result = envelope["result"]
    assert (result["name"], result["secret"], result["public"]) == ("alice", "alice.key", "alice.pub")
    public = (tmp_path / "alice.pub").read_text()
    assert result["channel"] in public
    assert result["statement"] in public
    secrets = re.findall(r"[0-9a-f]{64}", (tmp_path / "alice.key").read_text())
    assert len(secrets) == 3
    assert not any(secret in out for secret in secrets)
    assert (tmp_path / "alice.key").stat().st_mode & 0o777 == 0o600


def test_keygen_takes_a_name_and_says_the_same_as_text(run, tmp_path):
    code, out, _ = run("keygen", "keys.secret", "--name", "Alice of Accounting")
    assert code == ExitCode.OK
    assert "keys.secret: secret keys of Alice of Accounting" in out
    assert 'name = "Alice of Accounting"' in (tmp_path / "keys.pub").read_text()


@pytest.mark.parametrize("present", ["alice.key", "alice.pub"])
def test_keygen_never_overwrites(run, tmp_path, present):
    (tmp_path / present).write_text("precious")
    code, out, error = run("keygen", "alice.key", "--format", "json")
    assert code == ExitCode.STORAGE
    assert json.loads(out)["error"]["kind"] == "StorageError"
    assert f"{present} exists; keys are never overwritten" in error
    assert (tmp_path / present).read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["keygen", "x.pub"], ExitCode.MISUSE, "another suffix"),
        (["keygen", ""], ExitCode.MISUSE, "path: the name of a file to write the secret keys to expected"),
        (["outcome", "task.toml", "--identity", ""], ExitCode.MISUSE, "task.toml cannot be read"),
        (["resume", ""], ExitCode.MISUSE, "cannot be read: Is a directory"),
        (["outcome", "t.toml", "--timeout", "-1"], ExitCode.MISUSE, "timeout: a number of seconds expected"),
        (["keygen", "no/where/x.key"], ExitCode.STORAGE, "cannot be written: No such file or directory"),
        (["keygen", "x.key", "--name", 'a"b'], ExitCode.MISUSE, "printable"),
        (["serve", "none.toml"], ExitCode.MISUSE, "none.toml cannot be read: No such file or directory"),
        (["submit", "none.toml", "--identity", "x", "--update", "y.npz"], ExitCode.MISUSE, "y.npz cannot be read"),
        (
            ["retrieve", "none.toml", "--identity", "x", "--block", "b", "--rows", "1,x", "--output", "y"],
            ExitCode.MISUSE,
            "a list as in 3,17,99",
        ),
        (
            ["clients", "add", "c.toml", "x.key"],
            ExitCode.MISUSE,
            "x.key has secret keys, which are for its owner alone;",
        ),
        (["peers", "add", "t.toml", "x.key", "--server", "0"], ExitCode.MISUSE, "x.key has secret keys, which are for"),
        (
            ["peers", "add", "t.toml", "x.pub", "--server", "0", "--address", "host"],
            ExitCode.MISUSE,
            "of the form host:port or",
        ),
        (["demo", "--clients", "1"], ExitCode.MISUSE, "2 to 64 clients"),
        (["demo", "--rounds", "0"], ExitCode.MISUSE, "at least 1 round"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_object_on_stdout_and_one_line_on_stderr(run, words, code, message, tmp_path):
    ended, out, error = run(*words, "--format", "json")
    assert ended == code
    envelope = json.loads(out)
    assert set(envelope) == {"version", "command", "error"}
    command = " ".join(words[: 2 if words[0] in ("clients", "peers") else 1])
    assert (envelope["version"], envelope["command"]) == (1, command)
    assert envelope["error"]["code"] == code
    assert message in envelope["error"]["message"]
    assert error.count("\n") == 1
    assert error.startswith(f"fsl-async {command}: ")
    assert " ".join(envelope["error"]["message"].split()) in error
    assert list(tmp_path.iterdir()) == []
    ended, out, text_error = run(*words)
    assert (ended, out, text_error) == (code, "", error)


@pytest.mark.parametrize(("seconds", "lines"), [(4, 0), (3600, 1)])
async def test_who_waits_for_long_is_told_what_for_once(seconds, lines, autojump_clock, capsys):
    async with told_what_it_waits_for(Report("submit", "json")):
        await trio.sleep(seconds)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("fsl-async submit: still waiting for a server that is away or busy (--patience") == lines
    assert said.err.count("\n") == lines


def test_stdout_gets_one_object_whatever_goes_wrong_after_the_result(capsys):
    report, error = Report("submit", "json"), StorageError("the disk is full")
    report.result("done", {"round": 1})
    assert report.failure(error) == report.failure(error) == ExitCode.STORAGE
    told = capsys.readouterr()
    assert json.loads(told.out)["result"] == {"round": 1}
    assert told.err.count("the disk is full") == 1


def test_long_messages_stay_on_one_line(capsys):
    Report("demo", "text").failure(MisuseError("a " * 500))
    assert capsys.readouterr().err.count("\n") == 1


# ---- exit codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MisuseError("x"), ExitCode.MISUSE),
        (UnreachableError("x"), ExitCode.CHANNEL),
        (RefusedError("x", "y"), ExitCode.CHANNEL),
        (ChannelError("x"), ExitCode.CHANNEL),
        (PeerViolationError("S0", "x"), ExitCode.PEER),
        (StorageError("x"), ExitCode.STORAGE),
        (RoundClosedError("x"), ExitCode.ROUND),
        (RequestDeniedError(0, "conflict", "x"), ExitCode.ROUND),
        (FslError("round 1 was aborted: x"), ExitCode.ROUND),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (RuntimeError("a bug"), ExitCode.INTERNAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.name,
)
def test_every_family_of_errors_has_its_code(error, code):
    assert exit_code(error) == code


def test_every_code_has_a_section_on_its_page():
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d+): \w", page, re.MULTILINE) == [str(int(code)) for code in ExitCode]


def test_every_way_to_get_no_channel_is_on_the_page():
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8").partition("## 5")[0].partition("## 4")[2]
    kinds = set(re.findall(r"`(\w+Error)`", page))
    families = {kind.__name__ for kind in vars(transport.errors).values() if isinstance(kind, type)}
    asked_of_code = {"HandshakeError", "ChannelBrokenError", "MessageTooLongError", "TooSlowError", "ChannelError"}
    assert families - kinds <= asked_of_code
    assert kinds <= families


def test_a_bug_is_not_hidden(monkeypatch):
    async def buggy() -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("parties.commands.demo.run.run_demo", lambda **words: buggy())
    monkeypatch.setattr(sys, "argv", ["fsl-async", "demo"])
    with pytest.raises(ZeroDivisionError):
        main()


@pytest.mark.parametrize("many", [False, True])
def test_a_lack_of_memory_is_named_with_what_to_do(monkeypatch, capsys, many):
    lack = MemoryError("Unable to allocate 512. MiB for an array with shape (67108864,) and data type int64")

    async def large() -> None:
        await trio.lowlevel.checkpoint()
        raise ExceptionGroup("of a nursery", [lack, MemoryError()]) if many else lack

    monkeypatch.setattr("parties.commands.demo.run.run_demo", lambda **words: large())
    monkeypatch.setattr(sys, "argv", ["fsl-async", "demo"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.MEMORY
    words = " ".join(capsys.readouterr().err.split())
    assert "not enough memory (Unable to allocate 512. MiB for an array" in words
    assert "`fsl-async preflight` tells how much" in words
    assert "Traceback" not in words


# ---- processes


def python(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120)


def test_the_module_is_the_command():
    both = [
        python("-m", "parties", "--help"),
        python("-c", "from parties.commands.application import main; main()", "--help"),
    ]
    assert both[0].stdout == both[1].stdout
    assert both[0].returncode == both[1].returncode == 0
    assert "Usage: fsl-async COMMAND" in both[0].stdout
    (entry,) = [
        point for point in importlib.metadata.entry_points(group="console_scripts") if point.name == "fsl-async"
    ]
    assert entry.load() is main


HELPED = """
import sys
from parties.commands.application import main
for words in {lines}:
    sys.argv = ["fsl-async", *words]
    try:
        main()
    except SystemExit:
        pass
print(*sys.modules)
"""
FOR_WORK = {
    "asyncio", "h11", "llvmlite", "msgpack", "msgspec", "nacl", "numba", "numpy", "prometheus_client", "rich.markdown",
    "safetensors", "sqlite3", "structlog", "transport", "trio",
}  # fmt: skip


def test_help_the_version_and_usage_errors_import_nothing_that_only_work_needs():
    helped = [["--help"], *([*words, "--help"] for words in COMMANDS)]
    refused = [["kegen"], ["keygen", "x", "y"], ["serve", "--confi"], ["submit", "alice.toml"]]
    done = python("-c", HELPED.format(lines=[*helped, ["--version"], *refused]))
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.splitlines()[-1].split())
    assert "parties.commands.application" in modules
    assert not modules & FOR_WORK


def test_importing_the_library_imports_nothing_that_only_the_command_or_the_kernels_need(record_property):
    code = (
        "import sys, time; started = time.perf_counter(); from fsl_async import *; "
        "from parties import *; print(time.perf_counter() - started); print(*sys.modules)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    seconds, modules = done.stdout.splitlines()
    record_property("seconds to import", seconds)
    unwanted = {
        "numba",
        "llvmlite",
        "rich",
        "cyclopts",
        "matplotlib",
        "parties.commands.report",
        "parties.commands.application",
        "parties.commands.demo",
    }
    assert not unwanted & set(modules.split())
    assert {"fsl_async", "transport", "parties"} <= set(modules.split())
