"""LangGraph with its SQLite saver: graphs of one and of ten nodes in a row, a new thread id each.

`durability="sync"` writes each checkpoint before the next step begins, which is what the others do; the default,
"async", writes it while the next step runs. The saver sets WAL and leaves `synchronous` at FULL. Nodes run inside the
caller's process.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.telling import arguments, engine, folder, tell_best, tell_latency

NODES = 10
_threads = itertools.count()


class State(TypedDict):
    """What goes from node to node."""

    x: int


def main() -> None:
    """All rows."""
    asked = arguments()
    name = f"LangGraph {version('langgraph')} (SQLite saver)"
    durability = "WAL, synchronous=FULL; checkpoint before the next step (sync); in the caller's process"
    engine(name, durability)
    count = 20 if asked.quick else 100
    tell_latency("invoke, sync", [once(1, count, "sync", 1) for _ in range(asked.times)])
    rates: dict[str, list[float]] = {}
    for lanes in (1, 8):
        latencies = [timed(NODES, count // 2, "sync", lanes) for _ in range(asked.times)]
        rates[f"sync, {lanes} threads"] = latencies
    tell_best(rates)
    engine(
        name,
        durability.replace("before the next step (sync)", "while the next step runs (async, the default)"),
    )
    tell_latency("invoke, async", [once(1, count, "async", 1) for _ in range(asked.times)], compared=False)


def timed(nodes: int, count: int, durability: str, lanes: int) -> float:
    """Steps a second."""
    begin = time.perf_counter()
    spent = once(nodes, count, durability, lanes)
    took = time.perf_counter() - begin if lanes > 1 else sum(spent)
    return count * nodes / took


def once(nodes: int, count: int, durability: str, lanes: int) -> list[float]:
    """Seconds of each invocation, with a fresh database."""
    with folder() as where, SqliteSaver.from_conn_string(str(where / "langgraph.db")) as saver:
        saver.setup()
        graph = build(nodes, saver)

        def invoke(_: int) -> float:
            begin = time.perf_counter()
            thread = {"configurable": {"thread_id": f"t{next(_threads)}"}}
            assert graph.invoke({"x": 0}, thread, durability=durability)["x"] == nodes
            return time.perf_counter() - begin

        invoke(0)  # warm-up
        with ThreadPoolExecutor(lanes) as pool:
            return list(pool.map(invoke, range(count)))


def build(nodes: int, saver: Any) -> Any:
    """A chain of nodes that count."""
    graph: Any = StateGraph(State)
    before = START
    for i in range(nodes):
        graph.add_node(f"n{i}", lambda state: {"x": state["x"] + 1})
        graph.add_edge(before, f"n{i}")
        before = f"n{i}"
    graph.add_edge(before, END)
    return graph.compile(checkpointer=saver)


if __name__ == "__main__":
    main()
