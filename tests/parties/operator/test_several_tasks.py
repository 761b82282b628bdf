"""The operator's port of a process with several tasks."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fsl_async.errors import MisuseError
from parties.events import ConnectionFailed, SubmissionIn, Warned
from parties.operator import Log, ObserverSetup, OperatorObserver
from parties.operator.answers import VERSION
from parties.status import HostedTaskStatus
from tests.parties.operator.asking import Port
from tests.parties.operator.stage import Stage


class Played:
    """A task of a stage's process."""

    def __init__(self, name: str, process: OperatorObserver, digest: bytes) -> None:
        self.name = name
        self.stage = Stage()
        self.stage.observer = self.observer = OperatorObserver(
            ObserverSetup(0, name, self.stage.log, clock=lambda: self.stage.now), process
        )
        self.now = HostedTaskStatus(state="running", digest=digest.hex(), store=f"/srv/{name}.sqlite")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)

    def standing(self) -> HostedTaskStatus:
        return self.now


class Stages:
    """A process with the tasks shop and town."""

    def __init__(self) -> None:
        self.process = OperatorObserver(ObserverSetup(0, "", Log("S0", "json"), clock=lambda: 5.0))
        self.played = [Played("shop", self.process, b"\x01" * 32), Played("town", self.process, b"\x02" * 32)]
        self.changed: list[tuple[str, str]] = []

    def tasks(self) -> list[Played]:
        return self.played

    async def drain(self, name: str) -> None:
        if name == "town":
            raise MisuseError("task 'town' is not running: it is drained")
        self.changed.append(("drain", name))

    async def start(self, name: str) -> None:
        self.changed.append(("start", name))


@pytest.fixture
def desk() -> Stages:
    return Stages()


@pytest.fixture
def port(desk) -> Port:
    found = Port()
    found.resources._operated = desk  # the same port, of another process
    return found


async def test_the_tasks_are_listed_with_what_tells_them_apart(port, desk):
    desk.played[0].stage.open_round(3)
    listed = await port.json("/tasks")
    assert (listed["version"], listed["server"]) == (VERSION, "S0")
    shop, town = listed["tasks"]
    assert (shop["name"], shop["digest"], shop["state"], shop["round"]) == ("shop", "01" * 32, "running", 3)
    assert (town["name"], town["round"], town["store"]) == ("town", None, "/srv/town.sqlite")


@pytest.mark.parametrize("path", ["/status.json", "/events", "/rounds.json", "/rounds/1.json", "/rounds.json?last=3"])
async def test_what_is_of_one_task_must_name_it(port, path):
    known = "there are: shop, town"
    refused = await port.json(path, 400)
    assert refused["error"] == "this server has several tasks; name one with --task, in a query with ?task=: shop, town"
    refused = await port.json(f"{path}{'&' if '?' in path else '?'}task=city", 404)
    assert refused["error"].endswith(known)


async def test_each_task_has_its_status_and_its_troubles_and_the_process_s(port, desk):
    shop, town = desk.played
    town.stage.meet_peer()
    shop.observer(Warned(about="store", explanation="shop's disk"))
    desk.process(Warned(about="configuration", explanation="everybody's file"))
    status = await port.json("/status.json?task=shop")
    assert [trouble["explanation"] for trouble in status["troubles"]] == ["shop's disk", "everybody's file"]
    status = await port.json("/status.json?task=town")
    assert [trouble["explanation"] for trouble in status["troubles"]] == ["everybody's file"]


async def test_metrics_have_the_task_and_those_of_the_process_have_none(port, desk):
    shop, town = desk.played
    shop.observer(SubmissionIn(number=1, client="anna", total=1))
    town.observer(Warned(about="store", explanation="full"))
    desk.process(Warned(about="configuration", explanation="wrong"))
    desk.process(ConnectionFailed(origin="203.0.113.9", kind="HandshakeError", explanation="no"))
    desk.played[1].now = HostedTaskStatus(state="failed", digest="", store="", explanation="damaged")
    _, _, body = await port.ask("GET", "/metrics")
    families = list(text_string_to_metric_families(body.decode()))
    assert len({family.name for family in families}) == len(families), "each once"
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    assert samples["fsl_submissions_total", (("task", "shop"),)] == 1
    assert samples["fsl_submissions_total", (("task", "town"),)] == 0
    assert samples["fsl_warnings_total", (("about", "store"), ("task", "town"))] == 1
    assert samples["fsl_warnings_total", (("about", "configuration"),)] == 1
    assert samples["fsl_connections_failed_total", (("kind", "HandshakeError"),)] == 1
    assert samples["fsl_task_state", (("state", "failed"), ("task", "town"))] == 1
    assert samples["fsl_task_state", (("state", "running"), ("task", "town"))] == 0
    without = {name for name, labels in samples if "task" not in dict(labels) and name.startswith("fsl_")}
    assert {name.removesuffix("_created") for name in without if "loop" not in name} <= {
        "fsl_warnings_total",
        "fsl_warnings",
        "fsl_connections_failed_total",
        "fsl_connections_failed",
    }


async def test_ready_is_where_every_task_is_served_or_was_drained(port, desk):
    shop, town = desk.played
    refused = await port.json("/readyz", 503)
    assert refused["missing"] == ["task 'shop': S1 is not connected", "task 'town': S1 is not connected"]
    shop.stage.meet_peer()
    town.now = HostedTaskStatus(state="failed", digest="", store="", explanation="the store is damaged")
    refused = await port.json("/readyz", 503)
    assert refused["missing"] == ["task 'town': failed: the store is damaged"]
    town.now = HostedTaskStatus(state="drained", digest="", store="")
    assert (await port.json("/readyz"))["ready"]


async def test_tasks_are_drained_and_started_with_the_token_alone(port, desk):
    code, _, _ = await port.ask("POST", "/tasks/drain?task=shop")
    assert (code, desk.changed) == (401, [])
    code, told = await port.order("POST", "/tasks/drain?task=shop")
    assert (code, desk.changed) == (202, [("drain", "shop")])
    assert [row["name"] for row in told["tasks"]] == ["shop", "town"]
    code, told = await port.order("POST", "/tasks/drain?task=town")
    assert (code, told["error"]) == (409, "task 'town' is not running: it is drained")
    assert (await port.order("POST", "/tasks/start"))[0] == 400
    await port.order("POST", "/tasks/start?task=town")
    assert desk.changed[1:] == [("start", "town")]
    code, _, _ = await port.ask("GET", "/tasks/start?task=town")
    assert code == 405


HOSTILE = ("%00", "%0d%0aSet-Cookie:%20a=b", "%1b%5b31m", "..%2f..%2fetc%2fpasswd", "x" * 3_000, "%ff%fe", "shop%00")


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_of_a_task_is_refused_in_plain_text(port, desk, name):
    status, headers, body = await port.ask("GET", f"/status.json?task={name}")
    assert status == 404
    assert len(body) < 1_000
    assert not any(byte < 32 for byte in body.rstrip(b"\n"))
    assert b"Set-Cookie" not in str(headers).encode()


@pytest.mark.parametrize("path", ["/tasks/drain", "/tasks/start", "/rounds/1/abort", "/rounds/1/close"])
@pytest.mark.parametrize("name", ["shop", "city", *HOSTILE])
async def test_who_has_no_token_changes_nothing_and_does_not_learn_which_tasks_there_are(port, desk, path, name):
    status, _, body = await port.ask("POST", f"{path}?task={name}")
    assert status == 401
    assert b"shop" not in body
    assert desk.changed == []


async def test_a_live_view_ends_with_its_task_so_that_it_is_asked_for_anew(port, desk, autojump_clock):
    view = port.resources._live(desk.played[1])
    assert (await anext(view)).startswith(b"data: ")
    del desk.played[1]
    with pytest.raises(StopAsyncIteration):
        await anext(view)
