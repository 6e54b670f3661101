"""Pages: keeps the server of the answer pages running, where the configuration says so (`[web] serve = true`).

Owns that one process. Promises: one that has ended is started again, after a time that grows while it fails; why it is
not there is published. Without `serve` it does nothing.
In: nothing. Out: nothing; others read the handle.
If it dies: the daemon ends. If its process dies: another one is started.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import trio

from pwf.actors.base.logging import Log
from pwf.actors.base.retry import Retries
from pwf.actors.pages.server_process import Server
from pwf.config import Web
from pwf.errors import RunnerCrashed
from pwf.host.identity import Identity

# --- limits ---------------------------------------------------------------------------------------------------

READY_S_MAX = 30.0

OpenServer = Callable[[], AbstractAsyncContextManager[Server]]

# --- the handle -----------------------------------------------------------------------------------------------


class PagesHandle:
    """What is known of the server. `url`: where the pages are; `trouble`: why they are not."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.trouble: str | None = None
        self.process: Identity | None = None

    def processes(self) -> list[Identity]:
        """What the daemon has started so that people can speak to it."""
        return [] if self.process is None else [self.process]


# --- the actor ------------------------------------------------------------------------------------------------


class Pages:
    """The actor."""

    def __init__(self, open_server: OpenServer, web: Web, log: Log) -> None:
        self._open = open_server
        self._web = web
        self._log = log
        self.handle = PagesHandle()

    async def run(self) -> None:
        """Serve until cancelled."""
        retries = Retries()
        while self._web.serve:
            began = trio.current_time()
            error = await self._one_server()
            retry_in_s = retries.failed(trio.current_time() - began)
            self.handle.url, self.handle.trouble = None, error.message
            self._log.warning("pages.down", error=error.message)
            await trio.sleep(retry_in_s)

    async def _one_server(self) -> RunnerCrashed:
        """From its start to its end; why it ended."""
        try:
            async with self._open() as server:
                self.handle.process = server.identity
                with trio.move_on_after(READY_S_MAX) as patience:
                    await server.ready()
                if patience.cancelled_caught:
                    return RunnerCrashed(f"it was not ready within {READY_S_MAX:g} s")
                self.handle.url, self.handle.trouble = self._web.url("/"), None
                self._log("pages.up")
                return await server.ended()
        except RunnerCrashed as error:
            return error
        finally:
            self.handle.process = None
