"""What the asynchronous client gives for a view: an iterator of its states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar, cast

from pwf.client.core import Subscription
from pwf.protocol.operations import RunList
from pwf.protocol.sessions import SessionView
from pwf.protocol.views import ENDED, RunView

V = TypeVar("V")


class _Stream(Generic[V]):
    """An async iterator of a view's states, the newest only where several came at once.

    Close it, or use `async with`.
    """

    def __init__(
        self,
        subscription: Subscription,
        wait: Callable[[Subscription, int], Awaitable[bool]],
        stop: Callable[[Subscription], None],
    ) -> None:
        self._wait = wait  # for a state newer than that number; False: there are no more
        self._stop = stop
        self._subscription = subscription
        self._seen = 0

    async def aclose(self) -> None:
        """Stop following. Doing it twice is fine."""
        self._stop(self._subscription)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> V:
        if not await self._wait(self._subscription, self._seen):
            raise StopAsyncIteration
        self._seen = self._subscription.news
        return cast(V, self._subscription.value())  # of the type that its row in `VIEWS` names


class RunsStream(_Stream[RunList]):
    """Of a list of runs, without end."""


class SessionStream(_Stream[SessionView]):
    """Of what there is for a session, without end."""


class RunStream(_Stream[RunView]):
    """Of a run; ends after the view in which the run has ended."""

    _done = False

    async def __anext__(self) -> RunView:
        if self._done:
            raise StopAsyncIteration
        view = await super().__anext__()
        if view.summary.status in ENDED:
            self._done = True
            await self.aclose()
        return view
