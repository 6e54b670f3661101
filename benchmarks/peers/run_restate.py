"""Restate: its single-node server with default settings, its Python SDK on hypercorn, and an HTTP client.

Rows: one step and ten from 1 and 16 clients; recovery after server and service were killed. Pitfalls: hypercorn runs
the service in a child, so its whole group must go; the ingress answers before the deployment is known, so the
registration is repeated until it is taken.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import httpx

from benchmarks.peers.telling import arguments, engine, folder, tell, tell_best, tell_latency, until

STEPS = 10
CLIENTS = 16
DURABILITY = "its default: replicated-loglet log server and partition store in RocksDB, WAL synced"
SERVICE = '''
import asyncio, os
import restate
bench = restate.Service("Bench")
FOLDER = os.environ["BENCH_FOLDER"]

@bench.handler()
async def run(ctx: restate.Context, request: dict) -> int:
    total = 0
    for i in range(request["n"]):
        total += await ctx.run_typed("step", lambda i=i: i)
    return total

def mark(name, i):
    """One line of eight bytes: appended at once, whoever else writes."""
    file = os.open(os.path.join(FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"%07d\\n" % i)
    os.close(file)
    return 1

@bench.handler()
async def hold(ctx: restate.Context, request: dict) -> int:
    await ctx.run_typed("first", lambda: mark("first", request["i"]))
    while not os.path.exists(os.path.join(FOLDER, "go")):
        await asyncio.sleep(0.5)
    return await ctx.run_typed("second", lambda: mark("second", request["i"]))

app = restate.app([bench])
'''


class World:
    """A server and a service in a folder; `start` and `kill` them any number of times."""

    def __init__(self, server: str, where: Path) -> None:
        self.where = where
        self._server = server
        self._ingress, self._admin, self._node, self._service = (free_port() for _ in range(4))
        self._processes: list[subprocess.Popen[bytes]] = []
        (where / "restateservice.py").write_text(SERVICE, encoding="utf-8")

    def url(self, path: str) -> str:
        """An address of the ingress."""
        return f"http://127.0.0.1:{self._ingress}{path}"

    def start(self) -> None:
        """Start both; returns when the ingress answers."""
        service = [sys.executable, "-m", "hypercorn", "--bind", f"127.0.0.1:{self._service}"]
        own = {**os.environ, "BENCH_FOLDER": str(self.where), "PYTHONPATH": str(self.where)}
        self._spawn([*service, "--log-level", "error", "restateservice:app"], own)
        settings = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{self._node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{self._node}",
            "RESTATE_LISTEN_MODE": "tcp",
            "DO_NOT_TRACK": "1",
            "RUST_LOG": "warn",
        }
        data = str(self.where / "data")
        self._spawn(
            [self._server, "--base-dir", data, "--node-name", "n1", "--no-logo"], {**os.environ, **settings}
        )
        until(lambda: answers(self.url("/restate/health")), 60)

    def register(self) -> None:
        """Make the service known to the server."""
        deployment = {"uri": f"http://127.0.0.1:{self._service}"}
        until(lambda: posted(f"http://127.0.0.1:{self._admin}/deployments", deployment), 60, 0.2)

    def kill(self) -> None:
        """SIGKILL to both, and to what they started."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes = []

    def marks(self, name: str) -> int:
        """How many invocations have executed a marking step, each counted once."""
        with suppress(FileNotFoundError):
            return len(set((self.where / name).read_bytes().splitlines()))
        return 0

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        with (self.where / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, env=environment, cwd=self.where, stdout=log, stderr=log, start_new_session=True
                )
            )


def main() -> None:
    """All rows."""
    asked = arguments()
    engine(f"Restate {server_version(asked.needs)} (SDK {version('restate-sdk')})", DURABILITY)
    with folder() as where:
        world = World(asked.needs, where)
        try:
            world.start()
            world.register()
            throughput(world, asked.times, 1.0 if asked.quick else 3.0)
        finally:
            world.kill()
    runs, times = (100, 1) if asked.quick else (1_000, 3)
    spent = [recovery(asked.needs, runs) for _ in range(times)]
    tell("recovery", f"{runs:,} killed, second step executed", spent, "s", better="less",
         subject=f"{runs:,} killed runs recovered", note=f"repetitions: {times}")  # fmt: skip


def throughput(world: World, times: int, seconds: float) -> None:
    """Latency of one step from one client; ten-step rates from one client and from sixteen."""
    asyncio.run(closed_loop(world, 1, 4, seconds))
    tell_latency("one client", [asyncio.run(closed_loop(world, 1, 1, seconds)) for _ in range(times)])
    rates: dict[str, list[float]] = {}
    for clients in (1, CLIENTS):
        counts = [len(asyncio.run(closed_loop(world, STEPS, clients, seconds))) for _ in range(times)]
        rates[f"{clients} clients"] = [count * STEPS / seconds for count in counts]
    tell_best(rates)


async def closed_loop(world: World, steps: int, clients: int, seconds: float) -> list[float]:
    """Seconds of each invocation that ended within the time."""
    latencies: list[float] = []
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def lane() -> None:
            while True:
                begin = time.perf_counter()
                (await client.post(world.url("/Bench/run"), json={"n": steps})).raise_for_status()
                now = time.perf_counter()
                if now > end:
                    return
                latencies.append(now - begin)

        end = time.perf_counter() + seconds
        await asyncio.gather(*(lane() for _ in range(clients)))
    return latencies


def recovery(server: str, runs: int) -> float:
    """Seconds from the start of server and service until every invocation has made its second step."""
    with folder() as where:
        world = World(server, where)
        try:
            world.start()
            world.register()
            asyncio.run(send(world, runs))
            until(lambda: world.marks("first") >= runs, 120, 0.1)
            time.sleep(1)  # the last marks may not be recorded by the server yet
            world.kill()
            (where / "go").touch()
            begin = time.perf_counter()
            world.start()
            until(lambda: world.marks("second") >= runs, 150)
            return time.perf_counter() - begin
        finally:
            world.kill()


async def send(world: World, runs: int) -> None:
    """Send so many invocations one way."""
    left = iter(range(runs))
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CLIENTS), timeout=60) as client:

        async def lane() -> None:
            for i in left:
                (await client.post(world.url("/Bench/hold/send"), json={"i": i})).raise_for_status()

        await asyncio.gather(*(lane() for _ in range(CLIENTS)))


def answers(url: str) -> bool:
    """Whether it says 200."""
    with suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code == 200
    return False


def posted(url: str, body: dict[str, str]) -> bool:
    """Whether it was taken."""
    with suppress(httpx.HTTPError):
        return httpx.post(url, json=body, timeout=10).status_code < 300
    return False


def server_version(server: str) -> str:
    """What the binary says of itself."""
    done = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
