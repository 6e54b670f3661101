"""What an agent that works by itself gives for its step, whichever way it does, judged: the first that fits counts.

Promises: only what fits the node's type, and what its `validate=` accepts, is accepted; at most `REJECTIONS_MAX` are
rejected and may be corrected, those of the tool and those of the last answers together; after that nothing is taken.
"""

from __future__ import annotations

import msgspec

from pwf.errors import PwfError
from pwf.protocol.kinds import KINDS
from pwf.protocol.own_step import StepAnswer
from pwf.runner.base.judging import judge
from pwf.runner.base.steps import Step, StepTimedOut
from pwf.values import canonical, parse
from pwf.workflow.schema import first_fault

REJECTIONS_MAX = 2  # each may be corrected
LATE = "the time of the step is over"
_FENCE = "```"


class Submissions:
    """Those of one step. `why_not`: of the last one that was rejected; `is_missing`: the last turn gave none."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._rejected_this_turn = 0
        self.accepted: bytes | None = None
        self.rejected = 0
        self.why_not = ""
        self.is_missing = True

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken."""
        return self.accepted is not None or self.rejected > REJECTIONS_MAX

    def begin_turn(self) -> None:
        """What follows is of the next turn."""
        self._rejected_this_turn, self.is_missing = 0, True

    def by_tool(self, value: bytes) -> StepAnswer:
        """What comes of a value that the agent hands in while it works. Raises nothing."""
        try:
            return self._by_tool(value)
        except StepTimedOut:
            return StepAnswer(verdict="closed", reason=LATE)

    def _by_tool(self, value: bytes) -> StepAnswer:
        if self._step.remaining_s <= 0:
            raise StepTimedOut
        if self.accepted is not None:
            return _again(value, self.accepted)
        if self.is_closed:
            return StepAnswer(verdict="closed", reason=self.why_not)
        self.is_missing = False
        if self._take(value.decode("utf-8", "replace")):
            return StepAnswer(verdict="accepted")
        self._rejected_this_turn += 1
        return StepAnswer(verdict="closed" if self.is_closed else "rejected", reason=self.why_not)

    def by_answer(self, answer: str) -> None:
        """The last answer of a turn, which counts where the turn has handed in nothing that was accepted."""
        if self.is_closed:
            return
        text = self._value_of(answer)
        if text is not None:
            self.is_missing = False
            self._take(text)
        elif not self._rejected_this_turn:  # else that reason still stands
            self._reject("it is no JSON value" if answer.strip() else "it is empty")

    def _take(self, text: str) -> bool:
        data, why_not = self._judged(text)
        if data is None:
            self._reject(why_not)
        self.accepted = data
        return data is not None

    def _reject(self, why_not: str) -> None:
        self.rejected += 1
        self.why_not = why_not

    def _judged(self, text: str) -> tuple[bytes | None, str]:
        """The output, or why there is none."""
        step = self._step
        try:
            data = canonical(parse(text), limit=step.launch.value_bytes_max, what="the answer")
        except PwfError as error:
            return None, error.message
        if step.node.spec.returns is not None:
            fault = first_fault(step.node.spec.returns, data)
            if fault is not None:
                return None, f"it does not fit: {fault}"
        if step.node.validate is not None:
            verdict = judge(step, data)
            if not verdict.accepted:
                return None, verdict.reason
        return data, ""

    def _value_of(self, answer: str) -> str | None:
        """The JSON text of an answer: all of it, or its only fenced block; of a reply, the reply as a text."""
        if is_verbatim(self._step):
            reply = answer.strip()
            return msgspec.json.encode(reply).decode() if reply else None
        return next((text for text in (answer.strip(), _fenced(answer)) if _is_json(text)), None)


def is_verbatim(step: Step) -> bool:
    """Whether its output is what the agent says, as it stands."""
    return KINDS[step.node.kind].verbatim


def _again(value: bytes, accepted: bytes) -> StepAnswer:
    """After one was accepted, the same one is it still."""
    try:
        is_same = canonical(parse(value.decode("utf-8", "replace"))) == accepted
    except PwfError:
        is_same = False
    if is_same:
        return StepAnswer(verdict="accepted")
    return StepAnswer(verdict="conflict", reason="another result has been accepted already")


def _fenced(answer: str) -> str:
    """What its only fenced block has; empty where there is none. One pass, whatever the text is."""
    parts = answer.split(_FENCE, 3)
    if len(parts) != 3:
        return ""
    language, _, text = parts[1].partition("\n")
    return text.strip() if language.strip() in ("", "json") else ""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True
