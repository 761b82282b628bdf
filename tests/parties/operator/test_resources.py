"""What the operator's port answers, and whom."""

import json
import re

import pytest
import trio

from fsl_async.errors import StorageError
from parties.operator.answers import CLIENTS_PER_PAGE, VERSION
from parties.operator.http import json_response
from parties.operator.resources import LONGEST_REASON
from tests import ROOT
from tests.parties.operator.asking import Port
from tests.parties.operator.stage import NAMES, NASTY, play_day
from tests.support.cases import in_turn

# ---- what it shows


async def test_the_status_says_how_the_server_stands(port):
    play_day(port.stage, rounds=4)
    status = await port.json("/status.json")
    assert (status["version"], status["server"], status["task"]) == (VERSION, "S0", "goods")
    run = status["round"]
    assert (run["number"], run["state"], run["submissions"], run["evaluated"]) == (5, "Open", 37, 29)
    assert (run["minimum"], run["maximum"], run["closes_at"]) == (16, 100, port.stage.now - 96 + 300)
    assert (run["since"], run["activity"]) == (port.stage.now - 96, "collecting")
    assert run["times"] == {"collecting": 96.0, "computing": 0.0, "waiting": 0.0, "interrupted": 0.0}
    assert run["evaluating"] == pytest.approx(29 * 0.6)
    assert (status["peer_connected"], status["peer_release"], status["release"]) == (True, "0.2.0", "0.2.0")
    assert (status["clients_known"], status["clients_present"], status["clients_connected"]) == (len(NAMES), 23, 23)
    assert (status["stage"], status["number"], status["last"]["number"]) == ("running", 5, 4)
    assert (status["rounds_done"], status["rounds_aborted"]) == (4, 0)
    assert status["resident_bytes"] > 1e6
    troubles = {each["about"]: each for each in status["troubles"]}
    assert troubles["connection failed (HandshakeTimeoutError)"]["times"] == 2


async def test_who_is_who_and_what_operators_compare(port):
    port.stage.open_round(1)
    status = await port.json("/status.json")
    here, there = status["places"]
    assert (status["server"], here["operator"]) == ("S0", "Example Hospital")
    assert (there["address"], status["peer_release"]) == ("s1.statistik.example.org:7000", "")
    prints = status["fingerprints"]
    spelled = [prints["task"], prints["model"], status["round"]["fingerprint"], *prints["keys"]]
    for fingerprint in spelled:
        assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{4}( [0-9A-HJKMNP-TV-Z]{4}){3}", fingerprint)
    assert len(set(spelled)) == 5


async def test_who_has_submitted_and_who_is_missing_in_pages(port):
    port.stage.known = [f"phone-{number:03}" for number in range(120)]
    before = await port.json("/clients.json")
    assert (before["round"], before["counts"]["all"], before["counts"]["submitted"]) == (None, 120, 0)
    port.stage.open_round(4)
    port.stage.connect("phone-007", "phone-007", "phone-100")
    port.stage.submit("phone-007")
    first = await port.json("/clients.json?show=missing")
    assert first["counts"] == {"all": 120, "submitted": 1, "missing": 119, "connected": 2}
    assert (first["round"], first["matching"], first["page"], first["pages"]) == (4, 119, 1, 3)
    assert len(first["clients"]) == CLIENTS_PER_PAGE
    last = await port.json("/clients.json?show=missing&page=99")
    assert (last["page"], last["clients"][-1]["name"]) == (3, "phone-119")
    found = await port.json("/clients.json?show=connected&search=PHONE-00")
    assert found["clients"] == [{"name": "phone-007", "connections": 2, "drawn": True, "submitted": True}]
    assert (await port.json("/clients.json?search=nobody"))["clients"] == []
    port.stage.drawn = frozenset({"phone-007", "phone-008"})
    drawn = await port.json("/clients.json?show=missing")
    assert [client["name"] for client in drawn["clients"]] == ["phone-008"], "who was not drawn is not missed"
    assert drawn["counts"]["all"] == 120
    for wrong in ("show=rows", "page=0", "page=x"):
        assert "expected" in (await port.json(f"/clients.json?{wrong}", 400))["error"]


async def test_names_of_clients_are_for_the_operator_alone(port):
    """The port that has them answers to this host's names only; what monitoring collects has none of them."""
    port.stage.known = ["alice-the-client"]
    port.stage.open_round(1)
    port.stage.submit("alice-the-client")
    assert "alice-the-client" in json.dumps(await port.json("/clients.json"))
    status, _, body = await port.ask("GET", "/clients.json", Host="evil.example.org")
    assert (status, b"alice" in body) == (421, False)
    for path in ("/metrics", "/healthz", "/readyz", "/status.json", "/rounds.json"):
        _, _, body = await port.ask("GET", path)
        assert b"alice" not in body, path


async def test_a_round_without_a_deadline_and_no_round_at_all(port):
    assert (await port.json("/status.json"))["round"] is None
    port.stage.open_round(1, seconds=float("inf"))
    assert (await port.json("/status.json"))["round"]["closes_at"] is None


async def test_past_rounds_in_short_and_one_in_full(port):
    port.stage.open_round(1)
    port.stage.settle(["alice", NASTY], {"bob": "proof"})
    port.stage.open_round(2)
    port.stage.settle([], {}, aborted="S1 was away\x1b[2J")
    (first, second) = (await port.json("/rounds.json"))["rounds"]
    assert (first["number"], first["counted"], first["not_counted"], first["explanation"]) == (1, 2, {"proof": 1}, "")
    assert second["explanation"] == "S1 was away\\x1b[2J"
    assert [each["number"] for each in (await port.json("/rounds.json?last=1"))["rounds"]] == [2]
    whole = await port.json("/rounds/1.json")
    assert whole["clients"] == sorted(["alice", NASTY])
    assert whole["excluded"] == {"bob": "proof"}
    assert whole["model"] == {"items": bytes(32).hex()}
    assert "not settled" in (await port.json("/rounds/3.json", 404))["error"]


async def test_only_those_rounds_are_read_that_are_shown(port):
    """There may be a hundred thousand of them; who wants earlier ones goes back page by page."""
    for number in range(1, 6):
        port.stage.open_round(number)
        port.stage.settle(["alice"], {})
    last = (await port.json("/rounds.json?last=2"))["rounds"]
    assert [each["number"] for each in last] == [4, 5]
    assert port.stage.read == 2
    before = (await port.json("/rounds.json?last=2&before=4"))["rounds"]
    assert [each["number"] for each in before] == [2, 3]
    await port.json("/rounds/2.json")
    assert port.stage.read == 1
    await port.json("/rounds.json")
    assert port.stage.read == 200
    assert "from 1 to 1000" in (await port.json("/rounds.json?last=1001", 400))["error"]
    assert "the number of a round" in (await port.json("/rounds.json?before=0", 400))["error"]


@pytest.mark.parametrize("last", ["0", "-1", "x", "1e3", "9999999", "²"])
async def test_a_wrong_number_of_rounds_is_refused(port, last):
    assert (
        await port.ask("GET", f"/rounds.json?last={last}".encode().decode("ascii", "replace").replace("�", "%C2%B2"))
    )[0] == 400


async def test_metrics_come_as_prometheus_wants_them(port):
    status, headers, body = await port.ask("GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'\nfsl_peer_connected{task="goods"} 0.0\n' in body


async def test_ready_means_that_clients_can_be_served(port):
    stage = port.stage
    assert await port.json("/readyz", 503) == {"ready": False, "missing": ["S1 is not connected"]}
    stage.open_round(1)
    assert (await port.json("/readyz"))["ready"]
    stage.move("Closed")
    assert not (await port.json("/readyz", 503))["ready"]
    stage.meet_peer()
    assert (await port.json("/readyz"))["ready"]
    stage.store = "the disk is full"
    assert (await port.json("/readyz", 503))["missing"] == ["the store cannot be written: the disk is full"]
    stage.store = ""
    assert (await port.json("/readyz"))["ready"]


async def test_a_peer_that_stops_as_planned_is_not_missed_for_an_hour(port):
    port.stage.peer_stops_since = port.stage.now
    port.stage.now += 3_599
    assert (await port.json("/readyz"))["ready"]
    port.stage.now += 1
    assert (await port.json("/readyz", 503))["missing"] == ["S1 is not connected"]


async def test_healthy_means_that_the_event_loop_runs(port, autojump):
    assert not (await port.json("/healthz", 503))["healthy"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.stage.observer.lag.watch)
        await trio.sleep(1)
        assert (await port.json("/healthz"))["healthy"]
        nursery.cancel_scope.cancel()
    await trio.sleep(60)
    assert "late" in (await port.json("/healthz", 503))["trouble"]


async def test_every_file_of_the_page_is_served_and_nothing_else_of_the_package(port):
    folder = ROOT / "parties" / "operator" / "page"
    for file in folder.iterdir():
        status, headers, body = await port.ask("GET", "/" if file.name == "index.html" else f"/{file.name}")
        assert (status, body) == (200, file.read_bytes()), file
        assert "text/" in headers["content-type"] or file.suffix == ".svg"
    for path in (
        "/../log.py",
        "/%2e%2e/log.py",
        "/page/index.html",
        "/index.html",
        "/etc/passwd",
        "/page.js/",
        "//page.js",
    ):
        assert (await port.ask("GET", path))[0] in (400, 404), path


async def test_every_answer_has_the_headers_that_keep_pages_apart(port):
    for method, path in (("GET", "/"), ("GET", "/status.json"), ("GET", "/nothing"), ("POST", "/rounds/1/abort")):
        _, headers, _ = await port.ask(method, path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


async def test_head_is_get_without_the_body(port):
    for path in ("/", "/status.json", "/metrics", "/events"):
        status, headers, body = await port.ask("HEAD", path)
        assert (status, body) == (200, b"")
        assert path == "/events" or int(headers["content-length"]) > 0


# ---- whom it answers


@in_turn(
    "host, answered",
    [
        ("localhost", True),
        ("LocalHost:9464", True),
        ("127.0.0.1", True),
        ("127.0.0.1:9464", True),
        ("[::1]:9464", True),
        ("192.0.2.7", True),
        ("s0.example.org:9464", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example:9464", False),
        ("", False),
        ("localhost:port", False),
        ("localhost:123456", False),
        ("[::1", False),
        ("::1", False),
        ("[fe80::1%eth0]", True),
        ("localhost@evil.example", False),
    ],
)
async def test_only_this_hosts_names_are_answered_to(host, answered):
    port = Port(None, "s0.example.org")
    status, _, body = await port.ask("GET", "/status.json", Host=host)
    assert status == (200 if answered else 421)
    assert answered or b"goods" not in body


async def test_a_request_without_a_host_is_malformed_or_refused(port):
    assert (await port.exchange(b"GET /status.json HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert (await port.exchange(b"GET /status.json HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 421 ")


ORDERS = [*(("POST", f"/rounds/1/{what}") for what in ("abort", "close", "draw")), ("PUT", "/log-level")]


async def test_nothing_changes_without_the_token(port):
    port.stage.open_round(1)
    because = json.dumps({"because": "a trial"}).encode()
    token = port.token
    for wrong in (
        "",
        "Bearer",
        "Bearer x",
        token[:-1],
        token + "0",
        token.replace("Bearer", "bearer"),
        "Basic eDp5",
        token.upper(),
    ):
        headers = {"Authorization": wrong} if wrong else {}
        for method, path in ORDERS:
            status, found, body = await port.ask(method, path, because, **headers)
            assert (status, found["www-authenticate"]) == (401, "Bearer"), wrong
            assert token[7:].encode() not in body
    assert port.stage.aborted == []
    assert port.stage.log.level == "info"


async def test_an_operator_gives_a_round_up_and_says_why(port):
    port.stage.open_round(4)
    body = json.dumps({"because": "  wrong model "}).encode()
    aborted = {"version": VERSION, "number": 4, "because": "wrong model"}
    assert await port.order("POST", "/rounds/4/abort", body) == (202, aborted)
    assert port.stage.aborted == [(4, "wrong model")]
    status, answer = await port.order("POST", "/rounds/5/abort", body)
    assert (status, answer["error"]) == (409, "round 5 is not running")
    for wrong in (
        b"",
        b"{}",
        b"[]",
        b'{"because": 3}',
        b'{"because": ""}',
        b"\xff",
        b"[" * 4000,
        json.dumps({"because": "x" * (LONGEST_REASON + 1)}).encode(),
    ):
        assert (await port.order("POST", "/rounds/4/abort", wrong))[0] == 400
    assert len(port.stage.aborted) == 1


async def test_errors_of_the_server_are_answers(port, monkeypatch):
    async def fail(most: int, before: int = 0) -> None:
        raise StorageError("the store cannot be read\x1b[2J")

    monkeypatch.setattr(port.stage, "past_rounds", fail)
    assert (await port.json("/rounds.json", 503))["error"] == "the store cannot be read\\x1b[2J"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("DELETE", "/status.json", 405, "GET"),
        ("GET", "/rounds/1/abort", 405, "POST"),
        ("POST", "/log-level", 405, "PUT"),
        ("OPTIONS", "/log-level", 405, "PUT"),
        ("GET", "/rounds/0.json", 404, None),
        ("GET", "/rounds/99999999999999999999.json", 404, None),
        ("GET", "/rounds/1.json/x", 404, None),
        ("POST", "/", 404, None),
        ("GET", "*", 400, None),
        ("GET", "http://evil.example/", 400, None),
        ("GET", "http://[/", 400, None),
    ],
)
async def test_other_methods_and_paths_are_refused(port, method, path, status, allow):
    found, headers, _ = await port.ask(method, path)
    assert (found, headers.get("allow")) == (status, allow)


def test_json_has_no_numbers_that_json_has_not():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_response({"x": float("inf")})
