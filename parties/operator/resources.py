"""The resources of the operator port, by path, and who may change anything.

    GET /                        the page
    GET /tasks                   the tasks of this process
    GET /status.json             the server's status
    GET /events                  the same whenever it changes (server-sent events)
    GET /clients.json?show=S     the known clients, in pages
    GET /rounds.json?last=N      settled rounds
    GET /rounds/N.json           one of them, with names
    GET /metrics                 for Prometheus
    GET /healthz, /readyz        200 or 503
    POST /rounds/N/abort         {"because": "…"}     with the operator's token
    POST /rounds/N/close         with the operator's token
    POST /rounds/N/draw          with the operator's token
    POST /tasks/drain, /start    with the operator's token
    PUT /log-level               {"level": "…"}       with the operator's token

What is of one task takes ?task=NAME, which is needed where there are several: /status.json, /events, the rounds, and
the changes of a task.

Rules: a request must address this host by an IP address, as localhost, or by a name that the configuration lists;
otherwise a web page elsewhere could read the port through a name that it makes resolve to this host. A request that
changes anything needs the token as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import TypeAlias

import trio

from fsl_async.errors import FslError, MisuseError
from fsl_async.foreign_text import printable
from parties.operator import answers
from parties.operator.answers import MOST_ROUNDS, SHOWN, VERSION, StatusAnswer
from parties.operator.http import RefusedRequest, Request, Response, as_json, json_response, refusal
from parties.operator.log_fields import plain_text
from parties.operator.metrics import CONTENT_TYPE, exposed
from parties.operator.overview import OperatedProcess, OperatedTask
from parties.operator.token import OperatorToken

LONGEST_REASON = 200
MOST_VIEWERS = 32
USUAL_ROUNDS = 200
MOST_PAGES = 10**6
LONGEST_SEARCH = 64
MANY_CLIENTS = 5_000
"""With more of them, a page of the list is made in a thread: it takes up to 40 ms for 100,000."""

MERGED_SECONDS = 0.2
"""Changes within so many seconds become one server-sent event."""

PLANNED_SECONDS = 3_600.0
"""For so long the other server is not missed that has said that it stops as its operator wants."""

HEARTBEAT = 10.0
"""Seconds after which the status is sent again without a change."""

SCRIPTS = ("page", "round", "parties", "past", "tasks", "charts", "labels", "units", "dom", "blobs", "workers")
STYLES = ("page", "cards")

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.css": (f"{name}.css", "text/css; charset=utf-8") for name in STYLES},
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
}

Handler: TypeAlias = Callable[..., Awaitable[Response]]


class Resources:
    """Answers requests about a server's process.

    Args:
        operated: the process.
        token: the token that a request must carry to change anything.
        hosts: the names, besides localhost and IP addresses, by which requests may address this host.
    """

    def __init__(self, operated: OperatedProcess, token: OperatorToken, hosts: Collection[str] = ()) -> None:
        self._operated = operated
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._viewers = 0
        folder = files("parties.operator") / "page"
        self._page = {
            path: Response(HTTPStatus.OK, kind, (folder / name).read_bytes()) for path, (name, kind) in PAGE.items()
        }
        self._paths: list[tuple[str, re.Pattern[str], Handler]] = [
            ("GET", re.compile(r"/tasks"), self._tasks),
            ("GET", re.compile(r"/status\.json"), self._status),
            ("GET", re.compile(r"/events"), self._events),
            ("GET", re.compile(r"/clients\.json"), self._clients),
            ("GET", re.compile(r"/rounds\.json"), self._rounds),
            ("GET", re.compile(r"/rounds/([1-9]\d{0,8})\.json"), self._round),
            ("GET", re.compile(r"/metrics"), self._metrics),
            ("GET", re.compile(r"/healthz"), self._healthz),
            ("GET", re.compile(r"/readyz"), self._readyz),
            ("POST", re.compile(r"/rounds/([1-9]\d{0,8})/abort"), self._abort),
            ("POST", re.compile(r"/rounds/([1-9]\d{0,8})/close"), self._close),
            ("POST", re.compile(r"/rounds/([1-9]\d{0,8})/draw"), self._draw),
            ("POST", re.compile(r"/tasks/drain"), self._drain),
            ("POST", re.compile(r"/tasks/start"), self._start),
            ("PUT", re.compile(r"/log-level"), self._log_level),
        ]

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        host = host_of(request.headers.get(b"host", b"").decode("latin-1"))
        if host not in self._hosts and not _is_address(host):
            return refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this port answers to its address, to localhost, and to the names in the server's configuration",
            )
        method = "GET" if request.method == "HEAD" else request.method
        if method == "GET" and request.path in self._page:
            return self._page[request.path]
        matches = [
            (verb, match, handler) for verb, path, handler in self._paths if (match := path.fullmatch(request.path))
        ]
        for verb, match, handler in matches:
            if verb == method:
                return await self._carry_out(handler, request, match.groups())
        if matches:
            allowed = ", ".join(verb for verb, _, _ in matches)
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{allowed} expected here", Allow=allowed)
        return refusal(HTTPStatus.NOT_FOUND, "there is nothing here; / is the page")

    async def _carry_out(self, handler: Handler, request: Request, groups: tuple[str, ...]) -> Response:
        if request.method not in ("GET", "HEAD") and not self._token.opens(request.headers.get(b"authorization", b"")):
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                "the operator's token is needed: Authorization: Bearer, with the contents of the server's token file",
                WWW_Authenticate="Bearer",
            )
        try:
            return await handler(request, *groups)
        except RefusedRequest as error:
            return refusal(error.status, str(error))
        except MisuseError as error:
            return refusal(HTTPStatus.CONFLICT, plain_text(str(error)))
        except FslError as error:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, plain_text(str(error)))

    def _task(self, request: Request) -> OperatedTask:
        """The task that a request is about.

        Raises:
            RefusedRequest: there is none of that name; or there are several, and none is named.
        """
        tasks = {task.name: task for task in self._operated.tasks()}
        name, known = request.query.get("task"), ", ".join(sorted(map(printable, tasks))) or "none"
        if name is None and len(tasks) == 1:
            return next(iter(tasks.values()))
        if name is None:
            explanation = f"this server has several tasks; name one with --task, in a query with ?task=: {known}"
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, explanation)
        if name not in tasks:
            raise RefusedRequest(
                HTTPStatus.NOT_FOUND, f"there is no task {printable(name[:64])!r} here; there are: {known}"
            )
        return tasks[name]

    # ---- queries

    async def _tasks(self, request: Request) -> Response:
        return json_response(answers.tasks_answer(self._operated))

    async def _status(self, request: Request) -> Response:
        return json_response(_answer(self._task(request)))

    async def _events(self, request: Request) -> Response:
        if self._viewers >= MOST_VIEWERS:
            text = f"{MOST_VIEWERS} live views are open, which is the most there can be; ask for /status.json"
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, Retry_After="10")
        return Response(HTTPStatus.OK, "text/event-stream", self._live(self._task(request)))

    async def _live(self, task: OperatedTask) -> AsyncGenerator[bytes, None]:
        """The status at once, after every change, and as a heartbeat; changes that follow closely are merged.

        It ends when the task is removed: one of that name that comes later is another one, for which to ask again.
        """
        self._viewers += 1
        try:
            while task in self._operated.tasks():
                change = task.observer.change
                yield b"data: " + as_json(_answer(task)) + b"\n\n"
                await _within(HEARTBEAT, change)
                await trio.sleep(MERGED_SECONDS)
        finally:
            self._viewers -= 1

    async def _clients(self, request: Request) -> Response:
        show, page = request.query.get("show", "all"), request.query.get("page", "1")
        shown = next((name for name in SHOWN if name == show), None)
        if shown is None:
            return refusal(HTTPStatus.BAD_REQUEST, f"show: one of {', '.join(SHOWN)} expected")
        if not _is_count(page, MOST_PAGES):
            return refusal(HTTPStatus.BAD_REQUEST, f"page: a whole number from 1 to {MOST_PAGES} expected")
        task = self._task(request)
        status = task.status()
        known = task.known_clients()
        make = partial(
            answers.clients_page,
            known,
            task.submitted_clients(),
            task.drawn_clients(),
            task.observer.connected.copy(),
            status.round.number if status.round else None,
            show=shown,
            search=request.query.get("search", "")[:LONGEST_SEARCH],
            page=int(page),
        )
        return json_response(await trio.to_thread.run_sync(make) if len(known) > MANY_CLIENTS else make())

    async def _rounds(self, request: Request) -> Response:
        last, before = request.query.get("last", str(USUAL_ROUNDS)), request.query.get("before", str(10**9))
        if not _is_count(last, MOST_ROUNDS):
            return refusal(HTTPStatus.BAD_REQUEST, f"last: a whole number from 1 to {MOST_ROUNDS} expected")
        if not _is_count(before, 10**9):
            return refusal(HTTPStatus.BAD_REQUEST, "before: the number of a round expected")
        past = await self._task(request).past_rounds(int(last), int(before))
        return json_response(answers.rounds_answer(past))

    async def _round(self, request: Request, number: str) -> Response:
        for past in await self._task(request).past_rounds(1, int(number) + 1):
            if past.report.number == int(number):
                return json_response(answers.round_answer(past))
        return refusal(HTTPStatus.NOT_FOUND, f"round {number} is not settled, or too long ago to be known")

    # ---- monitoring

    async def _metrics(self, request: Request) -> Response:
        tasks = self._operated.tasks()
        for task in tasks:
            standing, ready = task.standing(), not await _missing(task)
            task.observer.metrics.show(task.status(), standing.state, standing.store, ready)
        each = [(task.name, task.observer.metrics) for task in tasks]
        return Response(HTTPStatus.OK, CONTENT_TYPE, exposed(self._operated.process.metrics, each))

    async def _healthz(self, request: Request) -> Response:
        lag = self._operated.process.lag
        status = HTTPStatus.SERVICE_UNAVAILABLE if lag.problem else HTTPStatus.OK
        return json_response({"healthy": not lag.problem, "trouble": lag.problem, "lag_seconds": lag.worst}, status)

    async def _readyz(self, request: Request) -> Response:
        tasks = self._operated.tasks()
        missing = [
            f"task {task.name!r}: {one}" if len(tasks) > 1 else one for task in tasks for one in await _missing(task)
        ]
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        return json_response({"ready": not missing, "missing": missing}, status)

    # ---- changes

    async def _abort(self, request: Request, number: str) -> Response:
        because = _text_in(request.body, "because")
        if not because or len(because) > LONGEST_REASON:
            text = f'{{"because": "…"}} expected, with 1 to {LONGEST_REASON} characters that tell clients why'
            return refusal(HTTPStatus.BAD_REQUEST, text)
        await self._task(request).abort_round(int(number), because)
        return json_response(
            answers.Aborting(version=VERSION, number=int(number), because=because), HTTPStatus.ACCEPTED
        )

    async def _close(self, request: Request, number: str) -> Response:
        submissions = await self._task(request).close_now(int(number))
        return json_response(
            answers.Closing(version=VERSION, number=int(number), submissions=submissions), HTTPStatus.ACCEPTED
        )

    async def _draw(self, request: Request, number: str) -> Response:
        asked = self._task(request).draw_round(int(number))
        return json_response(answers.Drawing(version=VERSION, number=int(number), asked=asked), HTTPStatus.ACCEPTED)

    async def _drain(self, request: Request) -> Response:
        await self._operated.drain(self._task(request).name)
        return json_response(answers.tasks_answer(self._operated), HTTPStatus.ACCEPTED)

    async def _start(self, request: Request) -> Response:
        await self._operated.start(self._task(request).name)
        return json_response(answers.tasks_answer(self._operated), HTTPStatus.ACCEPTED)

    async def _log_level(self, request: Request) -> Response:
        log = self._operated.process.setup.log
        try:
            log.set_level(_text_in(request.body, "level"))
        except MisuseError as error:
            return refusal(HTTPStatus.BAD_REQUEST, str(error))
        return json_response(answers.LogLevel(version=VERSION, level=log.level))


def _answer(task: OperatedTask) -> StatusAnswer:
    return answers.status_answer(task.status(), task.observer)


async def _missing(task: OperatedTask) -> list[str]:
    """What keeps a task from being served; empty while a round is open and its store can be written."""
    standing = task.standing()
    match standing.state:
        case "drained" | "over":
            return []  # as its operator wants it
        case "starting" | "failed":
            return [plain_text(": ".join(filter(None, (standing.state, standing.explanation))))]
    status = task.status()
    missing, stops = [], status.peer_stops_since
    is_planned = stops is not None and task.observer.setup.clock() < stops + PLANNED_SECONDS
    is_open = status.round is not None and status.round.state == "Open"
    if not (status.peer_connected or is_planned or is_open):
        missing.append(f"{status.peer} is not connected")
    store = await task.observer.setup.store_problem()
    return [*missing, plain_text(f"the store cannot be written: {store}")] if store else missing


async def _within(seconds: float, event: trio.Event) -> None:
    with trio.move_on_after(seconds):
        await event.wait()


def host_of(header: str) -> str:
    """The host in an address or a Host header, in lower case and without port and brackets; empty if there is none."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+(?:%\w+)?)\]|([^:\[\]]*))(?::\d{1,5})?", header)
    return (match[1] or match[2]).lower() if match else ""


def _is_address(host: str) -> bool:
    """Whether a host is an address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_count(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most


def _text_in(body: bytes, name: str) -> str:
    """A string in a JSON object, stripped; empty if the body has no such string."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    text = value.get(name) if isinstance(value, dict) else None
    return text.strip() if isinstance(text, str) else ""
