"""The pages and who may open them.

Owns no state: the daemon knows tokens, decisions and who has won. Promises: GET and HEAD ask for views alone; a POST
decides only with a token that the daemon takes, for the proposal that was shown; whoever has no credentials gets 401
for every address but that of the style sheet, and leaves no trace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pwf.client.aio import Client
from pwf.config import Web
from pwf.errors import (
    Conflict,
    InvalidAnswer,
    InvalidArgument,
    NotFound,
    PersonNeeded,
    PwfError,
    Rejected,
    TokenRefused,
    ValueTooLarge,
)
from pwf.present import text
from pwf.protocol.decision_spec import shown_of
from pwf.protocol.decisions import DecidePayload, DecisionListPayload, DecisionView
from pwf.protocol.kinds import PLAIN
from pwf.protocol.notices import NoticeListPayload
from pwf.protocol.operations import RequestListPayload
from pwf.protocol.views import RequestView
from pwf.protocol.web import EnterPayload, LeavePayload, TokenPayload, TokenView, hash_of, new_token
from pwf.web import pages
from pwf.web.forms import read_form, read_value
from pwf.web.guard import Guard

COOKIE = (
    "pwf_browser"  # with the port after it: all ports of a name share their cookies, and each home has one
)
RUNS_SHOWN = 20
NOTICES_SHOWN = 10
SECOND_MS = 1_000
_TOKEN = re.compile(r"[0-9a-f]{32,64}")  # a link in a message of a channel has 128 bits

Page = Callable[[Request], Awaitable[Response]]


def make_app(daemon: Client, web: Web, urls: list[str]) -> Guard:
    """All pages, for a daemon. `urls`: under which they are reached."""
    found = _Pages(daemon, web)
    routes = [
        Route("/", found.page(found.inbox)),
        Route("/runs/{run_id}", found.page(found.run)),
        Route("/decisions/{id}", found.page(found.decision), methods=["GET", "POST"]),
        Route("/questions/{id}", found.page(found.question), methods=["GET", "POST"]),
        Route("/answer/{token}", found.page(found.link), methods=["GET", "POST"]),
        Route("/sign-in/{token}", found.page(found.sign_in), methods=["GET", "POST"]),
        Route("/sign-out", found.page(found.sign_out), methods=["POST"]),
        Route("/style.css", style),
        Route("/{path:path}", found.page(found.nowhere), methods=["GET", "POST"]),
    ]
    return Guard(Starlette(routes=routes), urls)


async def style(request: Request) -> Response:
    """The one thing that everybody may read."""
    return Response(_style(), media_type="text/css")


@cache
def _style() -> bytes:
    return (files("pwf.web") / "templates" / "style.css").read_bytes()


class _Pages:
    def __init__(self, daemon: Client, web: Web) -> None:
        self._daemon = daemon
        self._web = web
        self._cookie = f"{COOKIE}_{web.port}"

    def page(self, show: Page) -> Page:
        """The page, or what is shown when it can't be."""

        async def shown(request: Request) -> Response:
            try:
                return await show(request)
            except PwfError as error:
                return _error_page(error)

        return shown

    # --- with a browser that has signed in ------------------------------------------------------------------

    async def inbox(self, request: Request) -> Response:
        """`/`: what waits, and the newest runs."""
        await self._signed_in(request)
        decisions = await self._daemon.call("decision.list", DecisionListPayload())
        requests = await self._daemon.call("request.list", RequestListPayload())
        said = await self._daemon.call("notice.list", NoticeListPayload(limit=NOTICES_SHOWN))
        runs = await self._daemon.list(limit=RUNS_SHOWN)
        page = pages.inbox(decisions.decisions, requests.requests, said.notices, runs, _now_ms())
        return HTMLResponse(page)

    async def run(self, request: Request) -> Response:
        """`/runs/RUN`."""
        await self._signed_in(request)
        view = await self._daemon.show(request.path_params["run_id"])
        return HTMLResponse(pages.run(view, _now_ms()))

    async def decision(self, request: Request) -> Response:
        """`/decisions/DECISION`: GET shows it, POST decides."""
        token = await self._signed_in(request)
        view = await self._find(request.path_params["id"])
        form_token = _form_token(token, view.request.request_id, view.digest)
        if request.method != "POST":
            return await self._show(view, form_token)
        sent = await read_form(request)
        _check_form(sent, form_token)
        return await self._decide(request, view, sent, token, form_token)

    async def question(self, request: Request) -> Response:
        """`/questions/REQUEST`: GET shows it, POST answers it."""
        token = await self._signed_in(request)
        asked = await self._asked(request.path_params["id"])
        form_token = _form_token(token, asked.request_id, str(asked.revision))
        if request.method != "POST":
            return await self._show_question(asked, form_token)
        sent = await read_form(request)
        _check_form(sent, form_token)
        typed = sent.get("answer", "")
        try:
            await self._daemon.answer(asked.request_id, read_value(typed, asked.schema))
        except (InvalidAnswer, Conflict, Rejected) as error:
            asked = await self._asked(asked.request_id)
            status = 422 if isinstance(error, InvalidAnswer) else 409
            return await self._show_question(asked, form_token, error=error, typed=typed, status=status)
        return RedirectResponse(f"/questions/{asked.request_id}", 303)

    async def sign_out(self, request: Request) -> Response:
        """`/sign-out`: this browser knows nothing any more."""
        token = await self._signed_in(request)
        await self._daemon.call("web.leave", LeavePayload(token=token))
        response = _message("Signed out", "This browser is signed out.", "pwf web --link", is_in=False)
        response.delete_cookie(self._cookie)
        return response

    async def nowhere(self, request: Request) -> Response:
        """Every other address."""
        await self._signed_in(request)
        raise NotFound("there is no such page")

    # --- with a link ----------------------------------------------------------------------------------------

    async def link(self, request: Request) -> Response:
        """`/answer/TOKEN`: GET shows one decision, and what became of it; POST decides it, once."""
        token = request.path_params["token"]
        try:
            known = await self._known(token)
        except TokenRefused:
            raise LinkRefused(hint="pwf decide DECISION --link") from None
        if known.purpose != "answer" or known.decision_id is None:
            raise LinkRefused(hint="pwf decide DECISION --link")
        view = await self._find(known.decision_id)
        if request.method != "POST":
            return await self._show(view, None)
        return await self._decide(request, view, await read_form(request), token, None)

    async def sign_in(self, request: Request) -> Response:
        """`/sign-in/TOKEN`: GET asks, so that a preview uses nothing up; POST signs this browser in."""
        token = request.path_params["token"]
        if (await self._known(token)).purpose != "sign_in":
            raise TokenRefused("this is no link to sign in", hint="pwf web --link")
        if request.method != "POST":
            return HTMLResponse(pages.render("sign_in"))
        browser = new_token()
        payload = EnterPayload(token=token, browser_hash=hash_of(browser))
        entered = await self._daemon.call("web.enter", payload)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self._cookie,
            browser,
            max_age=(entered.expires_ms - _now_ms()) // SECOND_MS,
            httponly=True,
            samesite="strict",
            secure=self._web.is_public_host(request.headers["host"]) and self._web.is_encrypted,
        )
        return response

    # --- inside ---------------------------------------------------------------------------------------------

    async def _known(self, token: str) -> TokenView:
        """What a token is for. Raises `TokenRefused`."""
        if not _TOKEN.fullmatch(token):
            raise TokenRefused(hint="pwf web --link")
        known: TokenView = await self._daemon.call("web.token", TokenPayload(token=token))
        return known

    async def _signed_in(self, request: Request) -> str:
        """The browser's token. Raises `TokenRefused`."""
        token = request.cookies.get(self._cookie, "")
        if (await self._known(token)).purpose != "browser":
            raise TokenRefused("this browser is not signed in", hint="pwf web --link")
        return token

    async def _find(self, decision_id: str) -> DecisionView:
        found = await self._daemon.call("decision.list", DecisionListPayload(decision_id=decision_id))
        view: DecisionView = found.decisions[0]
        return view

    async def _show(
        self,
        view: DecisionView,
        form_token: str | None,
        *,
        error: PwfError | None = None,
        typed: tuple[str, str] | None = None,
        status: int = 200,
    ) -> Response:
        run_id = view.request.run_id
        shown = shown_of(await self._daemon.read_value(run_id, view.request.prompt))
        earlier = None
        if view.earlier is not None:
            earlier = shown_of(await self._daemon.read_value(run_id, view.earlier.presentation))
        page = pages.decision(
            view,
            shown,
            earlier,
            _now_ms(),
            form_token=form_token,
            error=None if error is None else _said(error),
            typed=typed,
        )
        return HTMLResponse(page, status)

    async def _decide(
        self, request: Request, view: DecisionView, sent: dict[str, str], token: str, form_token: str | None
    ) -> Response:
        if not sent.get("choice") or not sent.get("digest"):
            raise InvalidArgument("what was sent is no form of this page")
        choice, typed = sent["choice"], sent.get("text")
        payload = DecidePayload(
            decision_id=view.request.request_id,
            choice=choice,
            text=typed if typed else None,
            digest=sent["digest"],
            token=token,
        )
        try:
            await self._daemon.call("decision.answer", payload)
        except (InvalidAnswer, Conflict, Rejected) as error:
            view = await self._find(view.request.request_id)
            status = 422 if isinstance(error, InvalidAnswer) else 409
            return await self._show(view, form_token, error=error, typed=(choice, typed or ""), status=status)
        return RedirectResponse(request.url.path, 303)

    async def _asked(self, request_id: str) -> RequestView:
        payload = RequestListPayload(request=request_id, kinds=PLAIN)
        asked: RequestView = (await self._daemon.call("request.list", payload)).requests[0]
        return asked

    async def _show_question(
        self,
        asked: RequestView,
        form_token: str,
        *,
        error: PwfError | None = None,
        typed: str = "",
        status: int = 200,
    ) -> Response:
        data = await self._daemon.read_value(asked.run_id, asked.prompt)
        said = None if error is None else _said(error)
        page = pages.question(
            asked, text.prompt(data), _now_ms(), form_token=form_token, error=said, typed=typed
        )
        return HTMLResponse(page, status)


def _said(error: PwfError) -> str:
    """Why it was not taken. What else to do is for a terminal, but where the state of things refuses it."""
    return f"{error.message}: {error.hint}" if isinstance(error, Rejected) and error.hint else error.message


def _form_token(browser: str, about: str, digest: str) -> str:
    """What a form of a signed-in browser must bring back: nobody else can make it, for this or another proposal."""
    return hash_of(" ".join((browser, about, digest)))


def _check_form(sent: dict[str, str], form_token: str) -> None:
    if sent.get("form") != form_token:
        raise Conflict("what is asked has changed since this page was made", hint="open the page again")


class LinkRefused(TokenRefused):
    """The link to a decision is unknown, or over: there is nothing to sign in to."""


_STATUS: tuple[tuple[type[PwfError], int, str], ...] = (
    (LinkRefused, 401, "This link is unknown or over"),
    (TokenRefused, 401, "Not signed in"),
    (PersonNeeded, 403, "Only a person may do this"),
    (NotFound, 404, "Not found"),
    (Conflict, 409, "It has changed"),
    (Rejected, 409, "Not possible now"),
    (ValueTooLarge, 413, "Too large"),
    (InvalidArgument, 400, "That makes no sense"),
)


def _error_page(error: PwfError) -> Response:
    status, title = next(
        ((status, title) for kind, status, title in _STATUS if isinstance(error, kind)), (503, "Not now")
    )
    response = _message(title, error.message, error.hint, is_in=status != 401, status=status)
    if status == 401:
        response.headers["www-authenticate"] = 'pwf realm="answer pages"'
    return response


def _message(title: str, message: str, hint: str | None, *, is_in: bool, status: int = 200) -> HTMLResponse:
    page = pages.render("message", title=title, message=message, hint=hint, is_in=is_in)
    return HTMLResponse(page, status)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
