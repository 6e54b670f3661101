"""Both clients have the same names, so that what is learned of one holds for the other; and what they ask for."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from pwf.client.aio import Client
from pwf.client.sync import SyncClient, connect_sync
from pwf.errors import NotFound
from pwf.protocol import operations as ops
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

#: What only one of them has, and why.
OWN = {
    "open": "the other is opened by `async with connect()`",
    "close": "as above",
    "fileno": "to be waited on with others",
    "poll": "takes in what has arrived",
    "pid": "what the command line says",
    "is_stopping": "what the command line says",
    "subscribe": "what `view` is made of",
    "unsubscribe": "as above",
    "next_news": "as above",
    "runs": "a list and its changes, without end",
    "lost": "to be waited for while others are served",
}


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def test_both_clients_have_the_same_names_with_the_same_arguments() -> None:
    blocking, asynchronous = public(SyncClient), public(Client)
    assert {*blocking} ^ {*asynchronous} == {*OWN}
    for name in blocking.keys() & asynchronous.keys():
        first, second = inspect.signature(blocking[name]), inspect.signature(asynchronous[name])
        assert first.parameters == second.parameters, name


def test_every_method_says_what_it_does() -> None:
    for kind in (SyncClient, Client):
        for name, member in public(kind).items():
            assert inspect.getdoc(member), f"{kind.__name__}.{name}"


@pytest.fixture
def client(daemon: FakeDaemon) -> Any:
    with connect_sync(daemon.places, autostart=False) as connected:
        yield connected


def test_a_list_goes_from_page_to_page_as_far_as_it_is_asked_for(
    client: SyncClient, daemon: FakeDaemon
) -> None:
    asked: list[Any] = []

    def runs(request: Any, payload: Any) -> Any:
        asked.append(payload)
        first = 0 if payload.cursor is None else payload.cursor
        names = [f"r{number}" for number in range(first, first + min(2, payload.limit))]
        return ops.RunList(runs=tuple(samples.summary(run_id=name) for name in names), next_cursor=first + 2)

    daemon.on("run.list", runs)
    found = client.list(workflow="release", statuses=["failed"], limit=5)
    assert [run.run_id for run in found] == ["r0", "r1", "r2", "r3", "r4"]
    assert {(one.workflow, one.statuses) for one in asked} == {("release", ("failed",))}


def test_a_history_is_whole(client: SyncClient, daemon: FakeDaemon) -> None:
    def events(request: Any, payload: Any) -> Any:
        revision = payload.after_revision + 1
        return ops.EventPage(
            run_id="r",
            events=(samples.event(revision=revision),),
            next_after=revision if revision < 5 else None,
        )

    daemon.on("run.events", events)
    assert [event.revision for event in client.events("r", after_revision=2)] == [3, 4, 5]


def test_an_output_is_python_values_of_the_run_or_of_a_node(client: SyncClient, daemon: FakeDaemon) -> None:
    view = samples.run_view(
        output=samples.value({"a": [1]}),
        steps=(
            samples.step("collect", status="completed", output=samples.value(3)),
            samples.step("collect", 2, status="failed"),
        ),
    )
    daemon.on("run.view", lambda request, payload: view)
    assert client.output("k3") == {"a": [1]}
    assert client.output("k3", type=dict[str, list[float]]) == {"a": [1.0]}
    assert client.output("k3", "collect") == 3


def test_an_output_that_was_left_out_of_a_full_page_is_read_again(
    client: SyncClient, daemon: FakeDaemon
) -> None:
    old, newest = (
        samples.step("collect", attempt, status="completed", output=samples.value(attempt))
        for attempt in (1, 2)
    )
    left_out = msgspec.structs.replace(newest, output=None)
    failed = samples.step("collect", 3, status="failed")
    asked: list[Any] = []

    def view(request: Any, payload: Any) -> Any:
        asked.append((request.run_id, payload.before_attempt))
        steps = (old, left_out, failed) if payload.before_attempt is None else (old, newest)
        return samples.run_view(steps=steps)

    daemon.on("run.view", view)
    assert client.output("@last", "collect") == 2, "and not the older one, which the page has"
    assert asked == [("@last", None), (samples.RUN, 3)]


def test_a_node_that_the_graph_does_not_have_is_named_with_the_nearest(
    client: SyncClient, daemon: FakeDaemon
) -> None:
    daemon.on("run.view", lambda request, payload: samples.run_view(steps=()))
    with pytest.raises(NotFound, match="has no node 'colect'") as refused:
        client.output("k3", "colect")
    assert refused.value.hint == "did you mean collect?"


def test_a_run_without_an_output_says_what_it_is(client: SyncClient, daemon: FakeDaemon) -> None:
    daemon.on("run.view", lambda request, payload: samples.run_view(output=None, steps=()))
    with pytest.raises(NotFound, match="has no output: it is"):
        client.output("k3")
    with pytest.raises(NotFound, match="'collect'"):
        client.output("k3", "collect")


def test_a_fork_says_what_was_asked_for_and_a_retry_names_no_node(
    client: SyncClient, daemon: FakeDaemon
) -> None:
    asked: list[Any] = []

    def fork(request: Any, payload: Any) -> Any:
        asked.append(payload)
        return samples.started(run_id="new")

    daemon.on("run.fork", fork)
    assert client.fork("k3", "collect", visit=2, input={"a": 1}, code="stored").run_id == "new"
    client.retry("k3", repeat_effects=True)
    first, second = asked
    assert (first.node, first.visit, bytes(first.input), first.code) == ("collect", 2, b'{"a":1}', "stored")
    assert (second.node, second.repeat_effects, second.code) == (None, True, "current")
