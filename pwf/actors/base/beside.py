"""A task beside what is done: it ends with that. What is raised comes as it is, where a nursery would wrap it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")


async def beside(
    act: Callable[[], Awaitable[R]],
    task: Callable[[*Arguments], Awaitable[object]],
    *arguments: *Arguments,
) -> R:
    """Do it, with the task beside it. Raises what `act` does: callers tell its errors by their classes."""
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task, *arguments)
        try:
            result = await act()
        except Exception as error:  # noqa: BLE001 - raised again, outside of the nursery
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
    return result
