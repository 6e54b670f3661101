"""A session as the store sees it: attached, with what it reports."""

from __future__ import annotations

from typing import Any

from pwf.protocol.sessions import MessageView, ReportPayload, SessionView, TurnPayload
from pwf.store.read_sessions import session_view
from pwf.store.session_turns import Report, ReportTurn, report, report_turn
from pwf.store.sessions import AttachSession, attach, detach
from pwf.store.submissions import Submit, submit
from pwf.values import canonical
from tests.store.world import Runner, World, graph, node

TYPE = {"type": "string"}
REVIEW = graph(
    node(
        "review",
        "agent",
        to="ship",
        returns=TYPE,
        timeout_ms=60_000,
        on={"failed": "sorry", "timed_out": "sorry"},
    ),
    node("ship"),
    node("sorry"),
)
JUDGED = graph(node("review", "agent", to="ship", returns=TYPE, validates=True), node("ship"))
ALONE = graph(node("review", "agent", returns=TYPE))


class Session:
    """Attached at once, and again by `attach`."""

    def __init__(self, world: World, session_id: str = "chat", *, reports: bool = True) -> None:
        self.world, self.session_id = world, session_id
        self.attach(reports=reports)

    def attach(self, *, reports: bool = True) -> None:
        self.fence = self.world.do(attach, AttachSession(session_id=self.session_id, client="test"))
        if reports:
            self.report(idle=True)

    def detach(self) -> None:
        self.world.do(detach, self.fence)

    # --- runs ---

    def run(self, flow: Any = REVIEW, **more: Any) -> Runner:
        return self.world.run(flow, session_id=self.session_id, **more)

    def asked(self, flow: Any = REVIEW, **more: Any) -> str:
        """A run of the session that waits for it; its id."""
        runner = self.run(flow, **more)
        assert runner.ask("Look at it.", "agent", schema=TYPE) == "park"
        runner.leave()
        return runner.run_id

    def submit(self, data: object = "fine", **more: Any) -> Any:
        asked = self.view.request
        command = Submit(
            request_id=more.pop("request_id", asked and asked.request_id),
            value=canonical(data),
            actor=f"session:{self.session_id}",
            session=self.fence,
            **more,
        )
        return self.world.do(submit, command)

    # --- what it reports ---

    def report(self, *branch: str, **facts: Any) -> None:
        self.world.do(report, Report(fence=self.fence, said=ReportPayload(branch=branch, **facts)))

    def turn(self, state: str = "started", turn_id: str = "t1", message_id: str | None = None) -> str:
        """Report a turn about a message, that which is next unless it is named; what it counts for."""
        about = message_id or self.message.message_id
        said = TurnPayload(turn_id=turn_id, message_id=about, state=state)  # type: ignore[arg-type]
        return str(self.world.do(report_turn, ReportTurn(fence=self.fence, said=said)).standing)

    # --- what it sees ---

    @property
    def view(self) -> SessionView:
        return self.world.read(session_view, self.session_id)

    @property
    def message(self) -> MessageView:
        found = self.view.message
        assert found is not None, "there is no message"
        return found

    @property
    def next(self) -> tuple[str, str] | None:
        """Reason (or kind) and status of the one message."""
        found = self.view.message
        return None if found is None else (found.reason or found.kind, found.status)
