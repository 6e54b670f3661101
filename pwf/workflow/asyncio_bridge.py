"""`run_asyncio`: call a library that only works under asyncio, from a trio node or a plain one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pwf.errors import InvalidArgument
from pwf.workflow.callables import is_async

T = TypeVar("T")


def run_asyncio(fn: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> Any:
    """Run `fn(*args, **kwargs)` to its end in an asyncio loop of its own.

    In an async node: `value = await run_asyncio(fn, …)`; the loop runs in a worker thread. In a plain node:
    `value = run_asyncio(fn, …)`, without await. What `fn` returns or raises comes back as it is.

    Each call has a new loop: connections and locks can not be carried from one call to the next, so do
    everything that belongs together in one `fn`. Tasks that `fn` leaves behind are cancelled when it returns.

    Cancellation and timeouts (async nodes) cancel the asyncio task and wait until it has ended: `finally`
    blocks run. A task that blocks its thread or swallows the cancellation can not be stopped that way; the
    whole runner process is ended then, once the node's time is over. In a plain node only that last way
    exists.
    """
    if not is_async(fn):
        raise InvalidArgument(
            f"run_asyncio was given {fn!r:.80}, which is not an async function",
            hint="give the function and its arguments, run_asyncio(fetch, url), not fetch(url)",
        )
    call = _Call(fn, args, kwargs)
    return _under_trio(call) if _in_trio() else call.run()


def _in_trio() -> bool:
    trio = sys.modules.get("trio")  # trio can't be running where it was never imported
    return trio is not None and bool(trio.lowlevel.in_trio_run())


class _Call:
    """One call, which may be cancelled from another thread."""

    def __init__(self, fn: Callable[..., Coroutine[Any, Any, Any]], args: Any, kwargs: Any) -> None:
        self._fn = fn
        self._args = args
        self._kwargs = kwargs
        self._lock = threading.Lock()  # between `cancel` and the thread that runs
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._cancelled = False

    def run(self) -> Any:
        """Run to the end, in this thread."""
        with asyncio.Runner() as runner:
            return runner.run(self._main())

    def cancel(self) -> None:
        """Cancel the task, now or as soon as it begins. From any thread; harmless when it has ended."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    async def _main(self) -> Any:
        task = asyncio.current_task()
        assert task is not None  # we run in one
        with self._lock:
            if self._cancelled:
                raise asyncio.CancelledError
            self._running = (asyncio.get_running_loop(), task)
        try:
            return await self._fn(*self._args, **self._kwargs)
        finally:
            with self._lock:
                self._running = None


async def _under_trio(call: _Call) -> Any:
    import trio  # not at the top: `from pwf import Workflow` must not load it

    result: list[Any] = []
    fault: list[BaseException] = []

    def in_thread() -> None:
        try:
            result.append(call.run())
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's task
            fault.append(error)

    async def cancel_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            call.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_cancelled)
        await trio.to_thread.run_sync(in_thread)  # not abandoned: two of one node's calls must never overlap
        nursery.cancel_scope.cancel()
    if fault:
        if isinstance(fault[0], asyncio.CancelledError):
            await trio.lowlevel.checkpoint_if_cancelled()  # our own cancellation, as trio's
        raise fault[0]
    return result[0]
