"""`run_asyncio`: asyncio-only code from trio nodes and plain nodes."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

from pwf import run_asyncio
from pwf.errors import InvalidArgument


async def add(a: int, *, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def fail() -> None:
    raise ValueError("no such page")


def test_a_plain_node_gets_the_result() -> None:
    assert run_asyncio(add, 1, b=2) == 3


def test_an_async_node_gets_the_result() -> None:
    async def node() -> int:
        result: int = await run_asyncio(add, 1, b=2)
        return result

    assert trio.run(node) == 3


def test_an_error_comes_back_as_it_is() -> None:
    with pytest.raises(ValueError, match="no such page"):
        run_asyncio(fail)

    async def node() -> None:
        await run_asyncio(fail)

    with pytest.raises(ValueError, match="no such page"):
        trio.run(node)


def test_two_calls_at_once_do_not_meet() -> None:
    found: list[int] = []

    async def node() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(call, number)

    async def call(number: int) -> None:
        found.append(await run_asyncio(add, number, b=10))

    trio.run(node)
    assert sorted(found) == [10, 11, 12]


def test_a_timeout_cancels_the_task_and_waits_for_its_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def node() -> bool:
        with trio.move_on_after(30) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_asyncio, forever)
                await trio.to_thread.run_sync(begun.wait)
                scope.cancel()
        return scope.cancelled_caught

    assert trio.run(node)
    assert ended.is_set()


def test_a_call_under_a_cancelled_scope_never_begins() -> None:
    begun: list[int] = []

    async def begin() -> None:
        begun.append(1)

    async def node() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await run_asyncio(begin)

    trio.run(node)
    assert begun == []


def test_a_task_that_swallows_its_cancellation_is_waited_for_and_the_call_is_cancelled_all_the_same() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
        return "too late"

    found: list[str] = []

    async def call() -> None:
        found.append(await run_asyncio(stubborn))

    async def node() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.to_thread.run_sync(begun.wait)
            nursery.cancel_scope.cancel()

    trio.run(node)
    assert ended.is_set()
    assert found == []


@pytest.mark.parametrize("wrong", [3, print, len])
def test_what_is_no_async_function_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="not an async function"):
        run_asyncio(wrong)  # type: ignore[arg-type]


def test_a_coroutine_in_place_of_a_function_is_refused() -> None:
    coroutine = add(1, b=2)
    with pytest.raises(InvalidArgument, match="not an async function") as caught:
        run_asyncio(coroutine)  # type: ignore[arg-type]
    coroutine.close()
    assert "not fetch(url)" in (caught.value.hint or "")
