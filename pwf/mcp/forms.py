"""Decisions that a host puts before its person as forms (elicitation), where a channel of the kind `mcp` names it.

Owns the connection to that channel's adapter. Promises: without such a channel, or for a host that shows no forms,
nothing is connected and nothing asked; the model sees neither form nor answer; who does not decide is not asked again.
A host of the protocol's version of 2026-07-28 shows forms during a call alone, and gets them with the next `my_step`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.abc import ByteStream, TaskGroup
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from pwf.config import McpChannel, load_config
from pwf.errors import PwfError
from pwf.places import Places
from pwf.protocol.channel_port import LINE_BYTES_MAX, line_of
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.host_port import Answer, Heard, Hello, Offer, Withdraw, socket_of, to_host
from pwf.secrets import resolve

RETRY_S, RETRY_S_MAX = 1.0, 60.0
ASKED_MAX = 5  # of one decision, since a host may accept a form by itself, and wrongly, for ever


class Forms:
    """Of one host over stdio: `meet` at each call, `take` and `asked` before `my_step`."""

    def __init__(self, at: Places, tasks: TaskGroup) -> None:
        self._at = at
        self._tasks = tasks
        self._is_met = False
        self._session: ServerSession | None = None  # of a host that shows forms at any time
        self._stream: ByteStream | None = None
        self._writing = anyio.Lock()
        self._offers: dict[str, Offer] = {}  # what the person is to be asked, by its request
        self._answered: dict[str, Offer] = {}  # what the person has said, until it is heard what came of that
        self._asking: dict[str, anyio.CancelScope] = {}
        self._times: Counter[str] = Counter()

    def meet(self, session: ServerSession) -> None:
        """The host calls: with its first call it is known which one it is."""
        if self._is_met:
            return
        self._is_met = True
        params, able = session.client_params, session.client_capabilities
        if params is None or able is None or able.elicitation is None:
            return
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._session = session
        self._tasks.start_soon(self._serve, params.client_info.name)

    async def take(self, answers: Mapping[str, object] | None) -> None:
        """What the person said to forms."""
        for request_id, result in (answers or {}).items():
            offer = self._offers.pop(request_id, None)
            if offer is not None and isinstance(result, types.ElicitResult) and result.action == "accept":
                await self._answer(offer, result.content or {})

    def asked(self) -> types.InputRequiredResult | None:
        """The forms that a call is answered with first; None where there are none."""
        if self._session is not None or not self._offers:
            return None
        forms = {name: types.ElicitRequest(params=form_of(offer)) for name, offer in self._offers.items()}
        return types.InputRequiredResult(input_requests=dict(forms))

    # --- the channel's adapter ------------------------------------------------------------------------------

    async def _serve(self, host: str) -> None:
        """Follow the channel that names this host, over connections that come and go."""
        wait_s = RETRY_S
        while (found := await anyio.to_thread.run_sync(self._channel_of, host)) is not None:
            served = await self._follow(*found, host)
            for request_id in [*self._offers, *self._asking]:
                self._withdraw(request_id)
            wait_s = RETRY_S if served else min(RETRY_S_MAX, wait_s * 2)
            await anyio.sleep(wait_s)

    def _channel_of(self, host: str) -> tuple[str, str] | None:
        """The name and the token of the channel that names this host; None where none does."""
        try:
            channels = load_config(self._at.config).channels
            kinds = {name: one for name, one in channels.items() if isinstance(one, McpChannel)}
            for name, channel in kinds.items():
                if host in channel.hosts:
                    return name, resolve(channel.token, self._at.config).strip()
        except PwfError as error:
            print(f"pwf mcp: this host's person is asked nothing: {error.message}", file=sys.stderr)
            return None
        if kinds:
            print(f"pwf mcp: this host is {host!r}, which no channel of the kind mcp names", file=sys.stderr)
        return None

    async def _follow(self, name: str, token: str, host: str) -> bool:
        """Take what one connection brings, until it ends; whether it brought anything."""
        served = False
        try:
            async with await anyio.connect_unix(socket_of(self._at, name)) as stream:
                await stream.send(line_of(Hello(token=token, host=host)))
                self._stream = stream
                splitter = FrameSplitter(LINE_BYTES_MAX)
                async for data in stream:
                    for line in splitter.feed(data):
                        served = True
                        self._hear(to_host.decode(line))
        except (OSError, anyio.BrokenResourceError, PwfError, msgspec.MsgspecError):
            pass  # the adapter is not there, or was restarted
        finally:
            self._stream = None
        return served

    def _hear(self, said: Offer | Withdraw | Heard) -> None:
        if isinstance(said, Withdraw):
            self._withdraw(said.request_id)
        elif isinstance(said, Offer):
            self._times[said.request_id] = 0
            self._offer(said)
        else:
            offer = self._answered.pop(said.request_id, None)
            if offer is not None and said.again is not None:
                self._offer(msgspec.structs.replace(offer, again=said.again))

    async def _answer(self, offer: Offer, content: Mapping[str, Any]) -> None:
        choice, text = content.get("choice"), content.get("text")
        said = Answer(
            request_id=offer.request_id,
            choice=str(choice),
            text=text if isinstance(text, str) and text.strip() else None,
        )
        self._answered[offer.request_id] = offer
        async with self._writing:
            if self._stream is not None:
                try:
                    await self._stream.send(line_of(said))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # it is offered again, when the adapter is there again

    # --- the person -----------------------------------------------------------------------------------------

    def _offer(self, offer: Offer) -> None:
        self._withdraw(offer.request_id)
        self._times[offer.request_id] += 1
        if self._times[offer.request_id] <= ASKED_MAX:
            self._offers[offer.request_id] = offer
            if self._session is not None:
                self._tasks.start_soon(self._ask, self._session, offer)

    def _withdraw(self, request_id: str) -> None:
        self._offers.pop(request_id, None)
        scope = self._asking.pop(request_id, None)
        if scope is not None:
            scope.cancel()

    async def _ask(self, session: ServerSession, offer: Offer) -> None:
        """Show the form, and wait for as long as the person takes."""
        if self._offers.get(offer.request_id) is not offer:
            return  # it was withdrawn meanwhile
        form = form_of(offer)
        with anyio.CancelScope() as scope:
            self._asking[offer.request_id] = scope
            try:
                result = await session.elicit_form(form.message, form.requested_schema)
            except (MCPError, ValidationError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # it can not: other channels show the decision, too
            self._asking.pop(offer.request_id, None)
            await self.take({offer.request_id: result})


def form_of(offer: Offer) -> types.ElicitRequestFormParams:
    """A decision as hosts show it."""
    choice = {
        "type": "string",
        "title": "What is decided?",
        "enum": [one.id for one in offer.choices],
        "enumNames": [one.label for one in offer.choices],
    }
    properties: dict[str, Any] = {"choice": choice}
    texts = [one for one in offer.choices if one.text is not None]
    if texts:
        for_each = "; ".join(f"{one.label}: {one.text.label}" for one in texts if one.text is not None)
        properties["text"] = {"type": "string", "title": "Text", "description": for_each}
    schema = {"type": "object", "properties": properties, "required": ["choice"]}
    text = offer.text if offer.again is None else f"{offer.again}\n\n{offer.text}"
    return types.ElicitRequestFormParams(message=text, requested_schema=schema)
