"""What a crash changed: holds each run of the lab against the same path without a crash, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from pwf.crashlab.observe import Key, LabRun, as_json
from pwf.crashlab.report import Findings
from pwf.protocol.effects import read_effect_key
from pwf.protocol.graph import NodeSpec, WorkflowGraph
from pwf.protocol.kinds import KINDS

SHOWN_MAX = 120
NEWLINE = b"\n"


@dataclass
class Baseline:
    """A path that nobody disturbed: what differs between two runs of it is not compared.

    In `twice`, pure functions were called a second time.
    """

    first: LabRun
    second: LabRun
    twice: LabRun

    def output(self, key: Key) -> str | None:
        """The output that is the same in every undisturbed run; None where there is no such."""
        one, other = self.first.outputs.get(key), self.second.outputs.get(key)
        return one if one == other else None


def judge_baseline(base: Baseline, graph: WorkflowGraph, *, stand_ins: bool, findings: Findings) -> bool:
    """Note what can be said without a crash. False when the path can't be used: it has no end of its own."""
    run = base.first
    if base.twice.stuck or base.twice.parked:
        why = base.twice.stuck or base.twice.parked[0].reason
        findings.add(
            "note", "not_compared", _node_of(base.twice), f"pure functions were not called twice: {why}"
        )
    for record in base.twice.touched:
        _judge_touched(record.kind, record.node, record.first, record.second, graph, findings)
    if run.refused_answer:
        findings.add(
            "fault",
            "no_answer",
            _node_of(run),
            f"the answer made up for {_node_of(run)!r} is refused: {run.refused_answer}",
            hint=f"give one: --answer {_node_of(run)}=JSON",
        )
        return False
    if run.stuck or run.parked:
        why = run.stuck or run.parked[0].reason
        findings.add("fault", "never_ends", _node_of(run), f"without any crash the run does not end: {why}")
        return False
    if run.status != base.second.status:
        findings.add(
            "fault",
            "not_repeatable",
            _node_of(run),
            f"two runs without any crash end as {run.status} and as {base.second.status}: the first changed what the "
            "second found outside",
            hint="let each run have a place of its own: {scratch} in the input is an empty folder of each run",
        )
        return False
    if run.status != "completed" and stand_ins:
        _judge_failed(run, graph, findings)
    return True


def _judge_failed(run: LabRun, graph: WorkflowGraph, findings: Findings) -> None:
    assert run.view is not None
    error = run.view.error
    node = (error.node if error is not None else "") or _node_of(run)
    stood_in = ", ".join(f"--output {one.id}=JSON" for one in graph.nodes if one.effect is not None)
    findings.add(
        "fault",
        "failed_without_crash",
        node,
        f"without any crash the run ends as {run.status} at {node!r}: {error.message if error else ''}",
        hint=f"if a stand-in's output is to blame, give one: {stood_in}" if stood_in else "",
    )


def _judge_touched(
    kind: str, node: str, first: str, second: str, graph: WorkflowGraph, findings: Findings
) -> None:
    what = graph.node(node).kind
    facts = KINDS[what]
    if kind == "touched":
        rule = f"the function of a {what} node may be called again at any time"
        if facts.pure:
            rule = f"a {what} node may run again at any time"
        elif facts.runs_command:
            rule = f"the function of a {what} node only says what is to be run, and may be called again"
        findings.add(
            "fault",
            "touches_outside",
            node,
            f"{node!r} {first}, and {rule}",
            same=f"{node} {first.partition(' ')[0]}",  # the scratch folders of two paths have other names
            hint="make it an action with a declared effect" if facts.pure else "do it in an action before",
        )
    elif facts.pure:
        findings.add(
            "fault",
            "varies",
            node,
            f"{node!r} gives {_short(first)} and, called again, {_short(second)}: a step that runs again after a "
            "crash may contradict what was seen before",
            same=node,
            hint=f"a {what} node may depend on ctx alone: read clocks, chance and files in an action",
        )
    else:
        said = "asks another question" if facts.asks else "makes another command"
        findings.add(
            "note",
            "varies",
            node,
            f"{node!r} {said} when it is called again: {_short(first)}, {_short(second)}",
            same=node,
        )


def judge(run: LabRun, base: Baseline, graph: WorkflowGraph, findings: Findings) -> None:
    """Compare a run that was disturbed with its path's baseline."""
    _judge_end(run, base, findings)
    _judge_outputs(run, base, graph, findings)
    _judge_effects(run, base, graph, findings)
    _judge_people(run, graph, findings)
    _judge_decisions(run, findings)
    _judge_files(run, base, findings)


def _judge_end(run: LabRun, base: Baseline, findings: Findings) -> None:
    node, after = _node_of(run), run.crash.words
    if run.stuck:
        message = f"a run is left at {node!r} and does not move: {run.stuck}"
        findings.add("fault", "does_not_move", node, message, same=node, after=after)
        return
    assert run.view is not None
    if run.status != base.first.status and not any(one.hold != "effect_ambiguous" for one in run.parked):
        error = run.view.error.message if run.view.error is not None else ""
        findings.add(
            "fault",
            "ends_otherwise",
            node,
            f"the run ends as {run.status} instead of {base.first.status}" + (f": {error}" if error else ""),
            same=f"{run.status} {base.first.status}",
            after=after,
        )
    twice = Counter((step.node, step.visit) for step in run.steps if step.status == "completed")
    for (step, visit), times in twice.items():
        if times > 1:
            message = f"{step!r} (visit {visit}) was committed {times} times"
            findings.add("fault", "committed_twice", step, message, same=f"{step} {visit}", after=after)


def has_repeated(run: LabRun, base: Baseline, key: Key, modes: Mapping[str, str] | None = None) -> bool:
    """Whether an effect of a visit happened more often than without a crash. `modes`: only of those that are manual."""
    return any(
        run.effects[one] > base.first.effects[one]
        for one in run.effects_of(key)
        if modes is None or not one[2] or modes.get(one[2]) == "manual"
    )


def part_modes(run: LabRun, key: Key) -> dict[str, str]:
    """part -> mode, of the effects that a visit made in mid-step."""
    found = () if run.view is None else run.view.effects
    parts = {read_effect_key(one.effect_key)[3]: one.mode for one in found if (one.node, one.visit) == key}
    return {part: mode for part, mode in parts.items() if part}


def _judge_outputs(run: LabRun, base: Baseline, graph: WorkflowGraph, findings: Findings) -> None:
    for key, output in run.outputs.items():
        expected = base.output(key)
        facts = KINDS[graph.node(key[0]).kind]
        if expected is None or expected == output or facts.parks:
            continue
        if facts.has_effect and has_repeated(run, base, key):
            continue  # it ran again, and may well say something else: what it did outside is compared
        findings.add(
            "fault",
            "output_differs",
            key[0],
            f"{key[0]!r} gives {_short(output)} after a crash, and {_short(expected)} without: something that it "
            "uses is lost with the process (a module's variable?)",
            same=key[0],
            hint="keep it in a node's output, and read it by ctx[node]",
            after=run.crash.words,
        )


def _judge_effects(run: LabRun, base: Baseline, graph: WorkflowGraph, findings: Findings) -> None:
    assert run.view is not None
    for effect in run.view.effects:
        key = (effect.node, effect.visit, read_effect_key(effect.effect_key)[3])
        name = repr(effect.node) + (f" ({key[2]!r})" if key[2] else "")
        times, after = run.effects[key], run.crash.words
        if effect.mode == "manual" and times > max(1, base.first.effects[key]):
            findings.add(
                "fault",
                "effect_repeated",
                effect.node,
                f"the manual effect of {name} would happen {times} times: its observe said that it had "
                "not happened",
                same=effect.node,
                hint="let observe read the outside system itself, by ctx.effect_key",
                after=after,
            )
        if effect.status == "applied" and times == 0:
            findings.add(
                "fault",
                "effect_lost",
                effect.node,
                f"the effect of {name} never happened, and counts as applied: its observe said so",
                hint="let observe answer applied() only for what carries this ctx.effect_key",
                after=after,
            )


def _judge_people(run: LabRun, graph: WorkflowGraph, findings: Findings) -> None:
    for parked in run.parked:
        if parked.hold == "effect_ambiguous":
            why, hint = _why_unknown(graph.node(parked.node) if parked.node else None)
            findings.add(
                "person",
                "needs_person",
                parked.node,
                f"after a crash around {parked.node!r} its run is held as effect_ambiguous until a person says what "
                f"happened{why}",
                hint=hint,
                after=run.crash.words,
            )
        else:
            message = f"after a crash the run is held as {parked.hold}: {parked.reason}"
            same = f"{parked.node} {parked.hold}"
            findings.add("fault", "held", parked.node, message, same=same, after=run.crash.words)


def _why_unknown(node: NodeSpec | None) -> tuple[str, str]:
    """Why nobody could tell, and what to do about it."""
    if node is not None and node.effect is not None and node.effect.observable:
        return ": observe could not tell", ""
    if node is not None and node.effect is not None and node.effect.mode == "parts":
        return (
            ", since an effect of it has no observe",
            "give ctx.effect(…, observe=…), which reads the outside system",
        )
    return ", since it declares no observe", "declare manual(…, observe=…), which reads the outside system"


def _judge_decisions(run: LabRun, findings: Findings) -> None:
    for (node, visit), asked in run.requests.items():
        if len(asked) > 1:
            message = f"{node!r} (visit {visit}) was asked {len(asked)} times"
            findings.add("fault", "asked_again", node, message, same=node, after=run.crash.words)
    for (node, visit), answer in run.answers.items():
        taken = run.outputs.get((node, visit))
        if run.crash.stray_at == node or run.stuck or (run.parked and taken is None):
            continue
        if taken is not None and taken.startswith("digest "):
            continue  # too large to be compared as text
        if taken is None or msgspec.json.decode(taken) != msgspec.json.decode(run.plain(as_json(answer))):
            message = f"the answer to {node!r} (visit {visit}) was taken, and is {'lost' if taken is None else taken}"
            findings.add("fault", "decision_lost", node, message, same=node, after=run.crash.words)


def judge_stray(run: LabRun, findings: Findings) -> None:
    """A checkpoint was given an answer that no case takes: it must be refused, not end the run."""
    assert run.view is not None
    node = run.crash.stray_at
    error = run.view.error
    if run.refused_answer or run.status != "failed" or error is None or error.code != "routing_failed":
        return
    findings.add(
        "fault",
        "decision_lost",
        node,
        f"an answer to {node!r} that no case takes is accepted, and ends the run: {error.message}",
        hint="declare returns= with exactly the cases (a Literal or an enum), so that such an answer is refused",
    )


def _judge_files(run: LabRun, base: Baseline, findings: Findings) -> None:
    if run.status != base.first.status:
        return
    one, other, got = base.first.files, base.second.files, run.files
    node, after = _node_of(run), run.crash.words
    for name in one.keys() & other.keys():
        said = "is missing outside" if name not in got else _differs(one[name], other[name], got[name])
        if said:
            findings.add("fault", "outside_differs", node, f"{name} {said}", same=name, after=after)
    more = len(got) - len(one)
    if len(one) == len(other) and more > 0:
        names = sorted(got.keys() - one.keys() - other.keys()) or sorted(got.keys() - one.keys())
        message = f"outside there are {more} more files: {', '.join(names[:3])}"
        findings.add("fault", "outside_differs", node, message, same="more files", after=after)


def _differs(one: bytes, other: bytes, got: bytes) -> str:
    """How a file differs from what both undisturbed runs left; nothing where they differ from each other, too."""
    lines = one.count(NEWLINE)
    if got.count(NEWLINE) != lines and lines == other.count(NEWLINE) and _is_text(one):
        return f"has {got.count(NEWLINE)} lines instead of {lines}"
    if one == other and got != one:
        return (
            "has other content" if len(got) == len(one) else f"has {len(got):,} bytes instead of {len(one):,}"
        )
    return ""


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _node_of(run: LabRun) -> str:
    """Where the crash was; without one, where the run stands."""
    if len(run.crash.points) == 1:
        return run.crash.points[0].node
    if run.parked:
        return run.parked[0].node
    return (run.view.summary.node if run.view is not None else "") or ""


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
