"""A party's file: every key checked, every mistake named, and its page up to date."""

import math
import re
import runpy
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from fsl_async.errors import MisuseError
from parties import connect
from parties.client.setup import ClientSetup
from parties.deployment.server import server_setup
from parties.settings.host_file import HostFile, load_party
from parties.settings.party_file import KINDS, ClientFile, LimitsTable, RoundsTable, ServerFile
from parties.settings.reading import PREFIX, InMemory, OnDisk, settings
from parties.settings.task_file import Deployment
from parties.settings.writing import load_task, to_toml
from tests import ROOT
from tests.support import guide
from tests.support.shop import SERVER_FILE, TASK
from tests.support.town import deploy

CLIENT = {"task": "task.toml", "identity": "anna.key"}
PLAIN = {ServerFile: SERVER_FILE, ClientFile: CLIENT}
SECRET = "257e1b9c0d3f4a5566778899aabbccdd"
NUMBERS = [(kind, found) for kind in KINDS for found in settings(kind) if found.kind in (int, float)]


def written(folder: Path, kind: type, **changes) -> Path:
    """A file of that kind with some keys changed; of a table by `section.key`."""
    table = dict(PLAIN[kind])
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        (table.setdefault(section, {}) if section else table)[name] = value
    path = folder / "party.toml"
    path.write_text(to_toml(table).replace("NaN", "nan").replace("Infinity", "inf"))
    return path


def refused(path: Path, kind: type, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(MisuseError) as refusal:
        kind.load(path, environment or {})
    return str(refusal.value)


def value_of(file: msgspec.Struct, key: str) -> object:
    for name in key.split("."):
        (field,) = (each.name for each in msgspec.structs.fields(file) if each.encode_name == name)
        file = getattr(file, field)
    return file


# ---- the page


def test_the_page_is_up_to_date_and_has_every_key():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    generator = runpy.run_path(str(ROOT / "docs" / "generate_configuration.py"))
    assert page == generator["page"](), "run `make docs`"
    for kind in KINDS:
        for found in settings(kind):
            assert re.search(rf"^\| `{found.name}` \|.*\| {re.escape(found.about.description)} \|$", page, re.MULTILINE)


def test_every_file_on_the_page_is_a_valid_one(tmp_path):
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    examples = [content for language, content in guide.FENCE.findall(page) if language == "toml"]
    for kind, text in zip((HostFile, HostFile, ClientFile), examples, strict=True):
        (tmp_path / "party.toml").write_text(text)
        assert isinstance(load_party(tmp_path / "party.toml", {}), kind)


def test_no_two_keys_have_one_variable():
    for kind in KINDS:
        variables = [found.variable for found in settings(kind)]
        assert len(set(variables)) == len(variables)
        assert all(re.fullmatch(f"{PREFIX}[A-Z_]+", variable) for variable in variables)


# ---- values


@pytest.mark.parametrize(("kind", "found"), NUMBERS, ids=lambda value: getattr(value, "key", ""))
def test_a_number_out_of_its_range_is_refused_with_file_key_value_and_range(tmp_path, kind, found):
    low, high = found.about.low, found.about.high
    for good in {low, high}:
        good = found.kind(good)
        path = written(tmp_path, kind, **{found.key: good})
        assert value_of(kind.load(path, {}), found.key) == good
    for bad in (low - 1, high + 1, str(low), True, math.nan, math.inf, 0.5 if found.kind is int else "half"):
        bad = int(bad) if found.kind is int and bad in (low - 1, high + 1) else bad
        words = refused(written(tmp_path, kind, **{found.key: bad}), kind)
        assert f"party.toml: {found.key} must be {found.expected}, not {bad!r}" in words
        assert f"{low:,}" in words
        assert f"{high:,}" in words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("enrolment", "anyone", 'enrolment must be one of "list", "token", "open", not \'anyone\''),
        ("checkpoint_format", "onnx", 'checkpoint_format must be one of "npz", "safetensors"'),
        ("log.level", "loud", 'log.level must be one of "debug", "info", "warning", "error"'),
        ("listen", "localhost", "listen = 'localhost' is not an address of the form host:port or [host]:port"),
        ("operator.listen", "::1:80", "operator.listen must be an address"),
        ("identity", 5, "identity must be a text, not 5"),
        ("identity", "", "identity must be a text, not ''"),
        ("store", ["a"], "store must be"),
        ("rounds", 5, "[rounds] must be a table, not 5"),
    ],
)
def test_another_value_than_expected_is_refused_with_what_is(tmp_path, key, value, words):
    path = written(tmp_path, ServerFile)
    text = path.read_text()
    section, _, name = key.rpartition(".")
    line = f"{name} = {msgspec.json.encode(value).decode()}"
    text = text if section else re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
    path.write_text(f"{text}\n[{section}]\n{line}\n" if section else f"{line}\n{text}")
    assert words in refused(path, ServerFile)


@pytest.mark.parametrize(
    ("kind", "missing"), [(kind, key) for kind in KINDS for key in PLAIN[kind] if key not in ("clients", "model")]
)
def test_a_missing_key_is_named_with_what_it_means(tmp_path, kind, missing):
    path = tmp_path / "party.toml"
    path.write_text(to_toml({key: value for key, value in PLAIN[kind].items() if key != missing}))
    (found,) = [found for found in settings(kind) if found.key == missing]
    assert f"party.toml: {missing} is missing: {found.about.description}" in refused(path, kind)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("lisen", "did you mean 'listen'?"),
        ("rounds.patiense", "party.toml, rounds: unknown key 'patiense'; did you mean 'patience'?"),
        ("limits.connection", "did you mean 'connections'?"),
        ("operator.listens", "did you mean 'listen'?"),
        ("log.levle", "did you mean 'level'?"),
        ("handshakes_per_second", "it belongs in the table [limits]"),
        ("seconds", "it belongs in the table [rounds]"),
        ("zzz", "known are server, identity"),
        ("doors.core", "party.toml: unknown key 'doors'; servers have no doors any more"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path, key, hint):
    assert hint in refused(written(tmp_path, ServerFile, **{key: 1}), ServerFile)


def test_of_a_client_too(tmp_path):
    assert "did you mean 'patience'?" in refused(written(tmp_path, ClientFile, patiense=1), ClientFile)


def test_paths_are_relative_to_the_file_that_names_them(tmp_path):
    file = ServerFile.load(written(tmp_path, ServerFile, store="state.sqlite", save_model="/models/now.npz"), {})
    assert file.task == tmp_path / "task.toml"
    assert file.store == OnDisk(tmp_path / "state.sqlite")
    assert file.save_model == Path("/models/now.npz")
    assert file.checkpoints is None
    assert ServerFile.load(written(tmp_path, ServerFile), {}).store == InMemory()


def test_whose_file_it_is_shows_by_its_keys(tmp_path):
    assert isinstance(load_party(written(tmp_path, ServerFile), {}), HostFile)
    assert isinstance(load_party(written(tmp_path, ClientFile), {}), ClientFile)
    (tmp_path / "task.toml").write_text(guide.file("task.toml"))
    with pytest.raises(MisuseError, match="is a task file, which all parties share"):
        load_party(tmp_path / "task.toml", {})
    with pytest.raises(MisuseError, match=r"none\.toml cannot be read: No such file"):
        load_party(tmp_path / "none.toml", {})


# ---- the environment


def test_a_variable_goes_before_the_file_and_is_held_to_the_same_rules(tmp_path):
    path = written(tmp_path, ServerFile, **{"rounds.seconds": 5})
    environment = {
        "FSL_ASYNC_ROUNDS_SECONDS": "7.5",
        "FSL_ASYNC_LISTEN": "127.0.0.1:81",
        "FSL_ASYNC_LIMITS_BURST": "9",
        "FSL_ASYNC_STORE": "other.sqlite",
        "FSL_ASYNC_PATIENCE": "3",  # a client's, and no business of a server
        "HOME": "/root",
    }
    file = ServerFile.load(path, environment)
    assert (file.rounds.seconds, file.listen, file.limits.burst) == (7.5, "127.0.0.1:81", 9)
    assert file.store == OnDisk(tmp_path / "other.sqlite")
    assert ClientFile.load(written(tmp_path, ClientFile), environment).patience == 3
    path = written(tmp_path, ServerFile)
    for variable, value, words in (
        ("FSL_ASYNC_LIMITS_BURST", "many", "FSL_ASYNC_LIMITS_BURST in the environment must be a whole number from 1"),
        ("FSL_ASYNC_LIMITS_BURST", "0", "not 0"),
        ("FSL_ASYNC_LISTEN", "", "FSL_ASYNC_LISTEN in the environment must be a text"),
        ("FSL_ASYNC_LISTENN", "127.0.0.1:1", "FSL_ASYNC_LISTENN in the environment is no setting; did you mean"),
        ("FSL_ASYNC_ZZZ", "1", "docs/configuration.md lists the settings"),
    ):
        assert words in refused(path, ServerFile, {variable: value})


def test_a_variable_can_stand_for_a_key_that_the_file_leaves_out(tmp_path):
    path = tmp_path / "party.toml"
    path.write_text(to_toml({key: value for key, value in SERVER_FILE.items() if key != "store"}))
    assert ServerFile.load(path, {"FSL_ASYNC_STORE": "memory"}).store == InMemory()


# ---- secrets


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (ServerFile, f'identity = "{SECRET * 2}"'),
        (ServerFile, f'channel_secret = "{SECRET * 2}"'),
        (ServerFile, f'[identity]\nchannel_secret = "{SECRET * 2}"'),
        (ServerFile, f'tokens = "{SECRET}"\nenrolment = "token"'),
        (ClientFile, f'token = "{SECRET}"'),
        (ClientFile, f'token = "{SECRET[:16]}-{SECRET[16:]}"'),
        (ClientFile, f'statement_secret = "{SECRET * 2}"'),
    ],
)
def test_a_secret_in_a_configuration_is_refused_and_not_repeated(tmp_path, kind, lines):
    name = re.findall(r"\w+", lines)[0]
    path = tmp_path / "party.toml"
    plain = {key: value for key, value in PLAIN[kind].items() if key != name}
    path.write_text(f"{to_toml(plain)}\n{lines}\n")
    words = refused(path, kind)
    assert "holds a secret, which belongs in a file of its own" in words
    assert SECRET[:16] not in words


def test_so_is_one_in_a_variable(tmp_path):
    words = refused(written(tmp_path, ClientFile), ClientFile, {"FSL_ASYNC_TOKEN": SECRET})
    assert "FSL_ASYNC_TOKEN in the environment holds a secret" in words
    assert SECRET not in words


# ---- what becomes of it


@pytest.fixture
def folder(tmp_path) -> Path:
    deploy(tmp_path, ("anna", "ben"), ("127.0.0.1:7000", "127.0.0.1:7001"))
    return tmp_path


async def test_every_setting_of_rounds_and_limits_reaches_the_server(folder):
    """Each has a value of its own, so that none can stand in for another."""
    rounds = {
        "clients": 3,
        "seconds": 101,
        "grace": 102,
        "patience": 103,
        "retention": 104,
        "count": 105,
        "wind_up": 106,
        "gather": 107,
    }
    limits = {found.name: 110 + number for number, found in enumerate(settings(LimitsTable))} | {"memory_bytes": 2**21}
    assert rounds.keys() == {found.name for found in settings(RoundsTable)}
    tables = {f"rounds.{key}": value for key, value in rounds.items()}
    tables |= {f"limits.{key}": value for key, value in limits.items()}
    setup = await server_setup(written(folder, ServerFile, **tables))
    schedule = setup.schedule
    assert (schedule.clients, schedule.seconds, schedule.grace) == (3, 101, 102)
    assert (schedule.patience, schedule.retention, schedule.rounds, schedule.gather) == (103, 104, 105, 107)
    got = {name: getattr(setup.limits, name, getattr(setup.conversations, name, None)) for name in limits}
    assert got == limits


async def test_zeros_of_rounds_and_limits_mean_no_limit(folder):
    setup = await server_setup(written(folder, ServerFile))
    assert (setup.schedule.clients, setup.schedule.seconds) == (TASK.max_clients, math.inf)
    assert setup.conversations.memory_bytes == 0


async def test_connect_takes_a_clients_own_file_and_says_what_is_wrong_with_it(folder):
    path = written(folder, ClientFile, token="token")
    (folder / "token").write_text(SECRET)
    (folder / "token").chmod(0o644)
    with pytest.raises(MisuseError, match="token can be read by others"):
        async with connect(path):
            pytest.fail("connected")
    (folder / "token").chmod(0o600)
    (folder / "token").write_text("no token")
    with pytest.raises(MisuseError, match="32 hexadecimal digits"):
        async with connect(path):
            pytest.fail("connected")
    with pytest.raises(MisuseError, match=r"is a task file.*identity=KEYS"):
        async with connect(folder / "task.toml"):
            pytest.fail("connected")


def test_a_clients_patience_is_the_same_with_and_without_a_file_of_its_own():
    declared = next(found for found in settings(ClientFile) if found.name == "patience")
    assert declared.default == next(field.default for field in fields(ClientSetup) if field.name == "patience")


def test_a_file_of_another_kind_is_refused_as_what_it_is(tmp_path):
    (tmp_path / "task.toml").write_text('[task]\nname = "t"\n[[servers]]\naddress = "a:1"\n')
    (tmp_path / "s0.toml").write_text('server = 0\nlisten = "127.0.0.1:7000"\n')
    with pytest.raises(MisuseError, match=r"is a task file.*give the server's own file"):
        HostFile.load(tmp_path / "task.toml")
    with pytest.raises(MisuseError, match=r"is a server's file, which `fsl-async serve` takes; give the client's own"):
        ClientFile.load(tmp_path / "s0.toml")
    (tmp_path / "anna.toml").write_text('task = "task.toml"\nidentity = "anna.key"\n')
    with pytest.raises(
        MisuseError, match=r"is a client's file, which `fsl-async retrieve` and `fsl-async submit` take"
    ):
        HostFile.load(tmp_path / "anna.toml", {})
    with pytest.raises(MisuseError, match="server is missing"):
        HostFile.load(tmp_path / "anna.toml", {"FSL_ASYNC_LISTEN": "127.0.0.1:7000"})


TASK_TABLE = """
[task]
name = "t"
ring = {bits = 64, fraction_bits = 24}
[[task.blocks]]
type = "dense"
name = "head"
size = 3
"""


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("protocol", '"ssa", "psr", "psu"'),
        ("selection", '"adaptive", "fixed"'),
        ("updates", '"retrieved", "any"'),
        ("alignment", '"all", "union"'),
        ("security", '"verified", "semi-honest"'),
        ("participants", '"count", "names"'),
        ("apply", '"sum", "mean", "weighted-mean", "row-mean", or a function as "module:function"'),
    ],
)
def test_a_word_that_a_field_does_not_have_is_answered_with_those_that_it_has(field, allowed, tmp_path):
    path = tmp_path / "task.toml"
    path.write_text(TASK_TABLE.replace("[[", f'{field} = "avg"\n[[', 1))
    with pytest.raises(MisuseError, match=rf"task.* {field} must be (one of )?{re.escape(allowed)}, not 'avg'"):
        Deployment.load(path)
    with pytest.raises(MisuseError, match=re.escape(allowed)):
        load_task(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"dense"', '"dence"', """task.toml, task, blocks 1: type must be one of "sparse", "dense", not 'dence'"""),
        ('type = "dense"\n', "", 'task.toml, task, blocks 1: type is missing; it must be one of "sparse", "dense"'),
        (
            '"t"\n',
            '"t"\noptimizer = {type = "adamw"}\n',
            """task.toml, task, optimizer: type must be one of "sgd", "momentum", "adam", not 'adamw'""",
        ),
    ],
)
def test_a_type_that_there_is_not_is_answered_with_those_that_there_are(old, new, words, tmp_path):
    path = tmp_path / "task.toml"
    path.write_text(TASK_TABLE.replace(old, new))
    with pytest.raises(MisuseError, match=re.escape(words)):
        Deployment.load(path)
