"""`fsl-async bench --task`: the first lines about a user's own task, and what is refused. Nothing here is timed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.costs.scaling import ANOTHER_MACHINE, Constants, Line, Retrieval, evaluation, load_of
from parties.commands.application import app, main
from parties.commands.bench import host
from parties.commands.bench.host import Work, work_of_a_client
from parties.commands.bench.machine import cores, this_machine
from parties.commands.plan.calibration import save_constants
from parties.commands.report import ExitCode
from parties.settings.writing import to_toml

SHOP = """
[task]
name = "shop"
min_clients = 2
max_clients = 100
ring = {bits = 64, fraction_bits = 24}
blocks = [
    {type = "sparse", name = "items", rows = 600, width = 2, select = 9},
    {type = "dense", name = "head", size = 3},
]
"""
ASKING = Retrieval(Line(2e-3, 1e-3), Line(4e-4, 0))
HERE = replace(ANOTHER_MACHINE, machine=this_machine(), retrieval=ASKING)
SIZES = "--rows 600 --select 9 --width 2 --bits 64 --clients 2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task file, and constants of this machine, which the test has not measured."""
    (tmp_path / "task.toml").write_text(SHOP)
    save_constants(tmp_path / "here.json", HERE)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def type_in(words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        code = app(f"bench {words}", exit_on_error=False, print_error=False)
        captured = capsys.readouterr()
        return int(code), captured.out, " ".join(captured.err.split())

    return type_in


def test_the_first_line_says_how_many_clients_this_host_serves_and_what_limits_it(run) -> None:
    code, out, _ = run("--task task.toml --constants here.json")
    first, blank, *table = out.splitlines()
    assert code == ExitCode.OK
    assert first.startswith("This host serves ")
    assert ' clients an hour for your task "shop", each of which retrieves once and submits once' in first
    assert "the first limit is the " in first
    assert not blank
    assert f"host: {cores()} threads; " in "\n".join(table)
    assert this_machine() in table[-1]


def test_bandwidths_are_taken_into_account(run) -> None:
    _, out, _ = run("--task task.toml --constants here.json --network 0.001 --format json")
    result = json.loads(out)["result"]
    assert result["first_limit"] == "network"


def test_without_constants_this_machine_is_measured(run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(progress) -> Constants:
        progress("everything")
        asked.append("measured")
        return HERE

    monkeypatch.setattr(host, "calibrated", measured)
    code, out, err = run("--task task.toml")
    assert (code, asked) == (ExitCode.OK, ["measured"])
    assert "about two minutes" in err
    assert "measuring everything" in err
    assert "clients an hour for your task" in out


def test_what_was_measured_with_the_task_takes_the_place_of_what_constants_say(run, monkeypatch) -> None:
    monkeypatch.setattr(host, "work_of_a_client", lambda task: Work(3.0, 5.0))
    _, out, _ = run("--task task.toml --constants here.json --format json")
    stages = {stage["part"]: stage for stage in json.loads(out)["result"]["server"]["stages"]}
    assert stages["evaluation"]["work"] == pytest.approx(3.0)
    assert stages["answers"]["work"] == pytest.approx(5.0)
    assert stages["processors"]["work"] > 8.0
    assert stages["event loop"]["work"] == pytest.approx((HERE.loop + ASKING.loop).at(load_of(TASK).size))


def test_a_task_that_has_no_room_here_is_not_measured_and_said_not_to_fit(run, monkeypatch) -> None:
    monkeypatch.setattr(host, "total_and_free_memory", lambda: (2**20, 2**20))
    monkeypatch.setattr(host, "work_of_a_client", lambda task: pytest.fail("it would not fit"))
    code, out, _ = run("--task task.toml --constants here.json --format json")
    result = json.loads(out)["result"]
    assert code == ExitCode.OK
    assert result["sentence"].startswith('This host does not serve your task "shop": a server needs ')
    assert result["clients_per_hour"] == 0


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("gone.toml", None, "gone.toml cannot be read: No such file"),
        ("text.toml", "a word", "text.toml is not TOML"),
        ("other.toml", "[tool]\nname = 'x'", "other.toml is no task file: it has no table [task]"),
        ("anna.toml", "identity = 'anna.key'\ntask = 'task.toml'", "anna.toml is a client's file, whose task file is"),
        (
            "S0.toml",
            "server = 0\nidentity = 'S0.key'\ntask = 'task.toml'\nclients = 'clients.toml'",
            "S0.toml is a server's file, whose task file is",
        ),
        ("wrong.toml", SHOP.replace("rows = 600", "rows = 0"), "wrong.toml"),
    ],
)
def test_a_file_that_is_no_task_is_refused(name, content, reason, folder: Path, run) -> None:
    if content is not None:
        (folder / name).write_text(content)
    code, out, err = run(f"--task {name} --constants here.json")
    assert code == ExitCode.MISUSE
    assert reason in err
    assert not out


def test_a_task_without_submissions_is_refused_before_anything_is_measured(folder: Path, run) -> None:
    block = {"type": "sparse", "name": "items", "rows": 600, "select": 9}
    plain = {"name": "lookup", "protocol": "psr", "blocks": [block]}
    (folder / "lookup.toml").write_text(to_toml({"task": plain}))
    code, _, err = run("--task lookup.toml")
    assert code == ExitCode.MISUSE
    assert "its clients submit nothing" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--task task.toml --constants there.json", "measure this one with"),
        ("--task task.toml --constants gone.json", "gone.json cannot be read"),
        ("--task task.toml --constants unasked.json", "unasked.json says nothing of retrievals"),
        ("--task task.toml --constants here.json --network 0", "bits per second above 0"),
        ("--calibrate new.json --constants here.json", "--constants: expected with --task"),
        ("--calibrate new.json --network 1", "--network: expected with --task"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: str, reason: str, folder: Path, run) -> None:
    save_constants(folder / "there.json", ANOTHER_MACHINE)
    save_constants(folder / "unasked.json", replace(HERE, retrieval=None))
    code, out, err = run(words)
    assert code == ExitCode.MISUSE
    assert reason in err
    assert not out


def test_neither_a_task_nor_a_file_for_constants_is_a_usage_error(
    monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fsl-async", "bench", "--format", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.USAGE
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["kind"] == "UsageError"
    assert "give --task with your task file" in captured.err


@pytest.mark.parametrize(
    ("settings", "omitted"),
    [
        ('updates = "any"', ""),
        ('alignment = "union"', "Not counted: the union before the round."),
        ("bound = 1.0", "Not counted: the proof of the bound."),
    ],
)
def test_what_is_not_counted_is_said(settings: str, omitted: str, folder: Path, run) -> None:
    text = SHOP.replace("min_clients", f"{settings}\nmin_clients").replace("bits = 64", "bits = 128")
    (folder / "kind.toml").write_text(text)
    code, out, _ = run("--task kind.toml --constants here.json")
    assert code == ExitCode.OK
    first = out.splitlines()[0]
    assert first.endswith(f". {omitted}" if omitted else ".")
    assert ("Not counted" in first) is bool(omitted)


SPARSE = Sparse("items", rows=600, width=2, select=9)
COMMON = {"ring": Ring(64, fraction_bits=24), "min_clients": 2, "max_clients": 100}
TASK = Task(name="shop", blocks=(SPARSE, Dense("head", size=3)), **COMMON)


@pytest.mark.parametrize(
    ("task", "answers"),
    [
        (Task(name="both", blocks=(SPARSE, Dense("head", size=3)), sample=20, **COMMON), True),
        (Task(name="any", blocks=(SPARSE,), updates="any", security="semi-honest", **COMMON), False),
        (Task(name="fixed", blocks=(SPARSE,), selection="fixed", **COMMON), True),
        (Task(name="union", blocks=(SPARSE,), alignment="union", **COMMON), True),
        (Task(name="few", blocks=(SPARSE,), min_contributors=2, lying_clients=0, **COMMON), True),
        (Task(name="bound", blocks=(SPARSE,), bound=1.0, **COMMON | {"ring": Ring(128, fraction_bits=24)}), True),
        (Task(name="dense", blocks=(Dense("head", size=30),), **COMMON), False),
        (Task(name="seen", protocol="psu", blocks=(SPARSE,), min_clients=5), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_client_of_every_kind_of_task_can_be_measured(task: Task, answers: bool) -> None:
    work = work_of_a_client(task)
    assert work.evaluation > 0
    assert (work.answers > 0) is answers


def test_terms_of_evaluation_keep_their_proportion() -> None:
    load = load_of(Task(name="both", blocks=(SPARSE,), **COMMON))
    fitted = host._with(HERE, load, 3.0)
    assert evaluation(load, fitted) == pytest.approx(3.0)
    assert fitted.leaf / fitted.plane == pytest.approx(HERE.leaf / HERE.plane)
    nothing = replace(HERE, submission=0, leaf=0, plane=0, proof=0)
    assert evaluation(load, host._with(nothing, load, 3.0)) == pytest.approx(3.0)
