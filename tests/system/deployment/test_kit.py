"""The samples in examples/deployment: linted, and true: each path, command and setting in them exists."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parties.commands.application import app
from parties.commands.report import ExitCode
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from tests import ROOT

KIT = ROOT / "examples" / "deployment"
UNIT = KIT / "fsl-async@.service"
WORKER_UNIT = KIT / "fsl-async-worker@.service"
SCHEDULER_UNIT = KIT / "fsl-async-scheduler.service"
UNITS = {"server": UNIT, "worker": WORKER_UNIT, "scheduler": SCHEDULER_UNIT}
CONTAINERFILE = KIT / "Containerfile"
COMPOSE = KIT / "compose.yaml"
ENOUGH = 20  # tenths of what `systemd-analyze security` calls exposure: from 0 to 100, above 40 it has something to say


def tool(name: str) -> str:
    """A program beside this Python or on the path; the test is skipped, saying so, where there is none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def ran(*words: str | Path) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def parsed(words: list[str]) -> str:
    """The subcommand that the command line understands these words as."""
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments
    return command.__name__


# ---- systemd


@pytest.fixture
def unit() -> configparser.SectionProxy:
    """The server's unit."""
    return service_of(UNIT)


def service_of(path: Path) -> configparser.SectionProxy:
    """A unit's [Service] section; of keys that stand in it several times, the last."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(path)
    return parser["Service"]


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_systemd_finds_nothing_to_say_about_the_unit(unit, tmp_path):
    analyze = tool("systemd-analyze")
    there = tmp_path / unit.name
    there.write_text(unit.read_text().replace("/opt/fsl-async/bin/fsl-async", tool("fsl-async")))
    assert ran(analyze, "verify", there) == ""


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_systemd_thinks_the_service_well_shut_in(unit):
    ran(tool("systemd-analyze"), "security", "--offline=true", f"--threshold={ENOUGH}", unit)


@pytest.mark.parametrize(("unit", "command"), [(WORKER_UNIT, "worker"), (SCHEDULER_UNIT, "scheduler")])
def test_a_cluster_s_units_run_commands_that_exist_and_start_them_again_when_the_scheduler_has_died(unit, command):
    service = service_of(unit)
    program, *words = service["ExecStart"].split()
    assert Path(program).name == "fsl-async"
    assert parsed(words) == command
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    given_up = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert given_up == {ExitCode.USAGE, ExitCode.MISUSE}, "a worker whose scheduler has died ends with another code"


@pytest.mark.parametrize("unit", [WORKER_UNIT, SCHEDULER_UNIT])
def test_a_cluster_s_units_cannot_read_the_server_s_keys_nor_write_a_share_to_a_disk(unit):
    service = service_of(unit)
    assert {"-/etc/fsl-async/s0.key", "-/etc/fsl-async/s1.key"} < set(service["InaccessiblePaths"].split())
    assert service["User"] in (KIT / "fsl-async.sysusers").read_text()
    assert service["User"] != service_of(UNIT)["User"]
    assert service["LimitCORE"] == "0"
    assert service["ProtectSystem"] == "strict"
    assert "StateDirectory" not in service


def test_only_a_worker_of_a_cluster_may_compile():
    assert service_of(WORKER_UNIT)["MemoryDenyWriteExecute"] == "no"
    assert service_of(WORKER_UNIT)["Environment"].endswith(f"/var/cache/{service_of(WORKER_UNIT)['CacheDirectory']}")
    assert service_of(SCHEDULER_UNIT)["MemoryDenyWriteExecute"] == "yes"


def test_whatever_loads_dask_sees_more_of_proc_than_processes(unit):
    """Dask reads /proc/meminfo when it is imported."""
    assert unit["ProcSubset"] == "pid"
    assert service_of(KIT / "fsl-async-cluster.conf")["ProcSubset"] == "all"
    for other in (WORKER_UNIT, SCHEDULER_UNIT):
        assert service_of(other).get("ProcSubset", "all") == "all"


def test_the_unit_starts_a_command_that_exists(unit):
    program, *words = unit["ExecStart"].split()
    assert Path(program).name == "fsl-async"
    assert parsed(words) == "serve"
    assert unit["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]


def test_the_unit_does_not_start_again_what_a_person_must_look_at(unit):
    given_up = {int(code) for code in unit["RestartPreventExitStatus"].split()}
    assert given_up == {ExitCode.USAGE, ExitCode.MISUSE, ExitCode.PEER}


def test_the_unit_lets_numba_compile_and_keeps_what_it_compiled(unit):
    assert unit["MemoryDenyWriteExecute"] == "no"
    assert unit["Environment"] == f"NUMBA_CACHE_DIR=/var/cache/{unit['CacheDirectory']}"
    assert unit["ProtectSystem"] == "strict"
    assert unit["LimitCORE"] == "0"


# ---- container


@pytest.fixture
def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions, in order: the word, and what follows it."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line]


def last(instructions: list[tuple[str, str]], word: str) -> str:
    return [rest for found, rest in instructions if found == word][-1]


def test_hadolint_finds_nothing_to_say_about_the_containerfile():
    assert ran(tool("hadolint"), CONTAINERFILE) == ""


def test_the_image_runs_a_command_that_exists_and_not_as_root(instructions):
    assert json.loads(last(instructions, "ENTRYPOINT")) == ["fsl-async"]
    assert parsed(json.loads(last(instructions, "CMD"))) == "serve"
    assert last(instructions, "USER") == "10001:10001"
    assert len([word for word, _ in instructions if word == "FROM"]) == 2


def test_the_image_is_made_of_a_release_on_a_base_that_its_builder_names_by_digest(instructions):
    copied = [rest.split()[:-1] for word, rest in instructions if word == "COPY" and not rest.startswith("--from")]
    assert copied == [["constraints-hashes.txt", "dist/*.whl"]], "all of a checkout may hold keys"
    assert (ROOT / "constraints-hashes.txt").exists()
    assert {rest.split()[0] for word, rest in instructions if word == "FROM"} == {"${BASE}"}
    assert ("ARG", "BASE") in instructions, "there is no default: a tag would be another image tomorrow"
    installs = " ".join(rest for word, rest in instructions if word == "RUN" and "pip install" in rest).split(
        "pip install"
    )
    assert "--require-hashes" in installs[1]
    assert "--no-deps --no-index" in installs[2]
    (check,) = [rest for word, rest in instructions if word == "RUN" and rest.startswith("case")]
    for base, code in [("python@sha256:00", 0), ("python:3.12-slim", 1), ("", 1)]:
        ended = subprocess.run(["sh", "-c", check], env={"BASE": base}, capture_output=True, check=False)
        assert ended.returncode == code, base


def test_health_is_asked_where_the_samples_answer(instructions):
    (command,) = re.findall(r"CMD (\[.*\])", last(instructions, "HEALTHCHECK"))
    assert json.loads(command)[:2] == ["python", "-c"]
    compile(json.loads(command)[2], "HEALTHCHECK", "exec")
    (asked,) = re.findall(r"'http://([^/]+)/healthz'", command)
    assert f'listen = "{asked}"' in (KIT / "s0.toml").read_text()


# ---- compose


@pytest.fixture
def compose() -> dict:
    yaml = pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed; it comes with check-jsonschema")
    return yaml.YAML(typ="safe").load(COMPOSE)


def test_compose_keeps_to_its_schema():
    ran(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_compose_warns_before_anything_else():
    assert COMPOSE.read_text().startswith("# TWO SERVERS UNDER ONE OPERATOR PROTECT NOBODY.")


def test_compose_builds_this_containerfile_and_runs_both_servers(compose):
    for number, name in enumerate(("s0", "s1")):
        service = compose["services"][name]
        assert (KIT / service["build"]["context"]).resolve() == ROOT
        assert ROOT / service["build"]["dockerfile"] == CONTAINERFILE
        assert parsed(service["command"]) == "serve"
        assert service["command"][1] == f"/etc/fsl-async/{name}.toml"
        assert service["read_only"] is True
        compile(service["healthcheck"]["test"][3], "healthcheck", "exec")
        assert ServerFile.load(KIT / f"{name}.toml").server == number


def test_what_a_server_writes_lies_on_a_volume(compose):
    for name in ("s0", "s1"):
        file = ServerFile.load(KIT / f"{name}.toml")
        mounted = [volume.split(":")[1] for volume in compose["services"][name]["volumes"] if ":ro" not in volume]
        assert isinstance(file.store, OnDisk)
        assert file.checkpoints
        for path in (file.store.path, file.checkpoints):
            assert any(path.is_relative_to(place) for place in mounted), path
