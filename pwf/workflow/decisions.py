"""What an author writes for a decision: choices, the text that one may ask for, and the presentation of a proposal.

Promises: whatever is wrong with a choice is found when the file loads; whatever is wrong with a presentation is an
error at the call of `ctx.present`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from pwf.errors import InvalidArgument, InvalidValue
from pwf.ids import ID_LENGTH_MAX, is_node_id
from pwf.protocol.decision_spec import (
    BLOCKS_MAX,
    CHOICE_CHARS_MAX,
    CHOICES_MAX,
    PRESENTATION_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TEXT_CHARS_MAX,
    Block,
    ChoiceSpec,
    DecisionSpec,
    Fields,
    Paragraph,
    Shown,
    TextSpec,
    output_of,
)
from pwf.protocol.graph import NodeSpec
from pwf.values import canonical
from pwf.workflow.deadline import DEFAULT_FOR_EVER, NONE_GIVEN, Deadline, unsettled
from pwf.workflow.faults import Fault
from pwf.workflow.timing import to_ms


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The output of a decision: the id of the choice, and what was written with it."""

    choice: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Text:
    """What a person writes with a choice. `required`: the choice can't be made without it."""

    label: str
    required: bool = True
    multiline: bool = True
    max_chars: int = TEXT_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to choose, by its id; `label` is what people read."""

    id: str
    label: str
    text: Text | None = None


@dataclass(frozen=True, slots=True)
class Presentation:
    """What `ctx.present` makes: the return value of a decision's function.

    `open_ms` and `default` (a choice) stand in place of what the node declares, where they are given.
    """

    shown: bytes  # canonical JSON of a `Shown`
    subject: bytes | None = None  # canonical JSON
    open_ms: int | None = NONE_GIVEN  # None: for ever
    default: str = NONE_GIVEN


def present(
    summary: str,
    blocks: Sequence[Block | str],
    *,
    title: str,
    fields: Mapping[str, object] | None,
    subject: object,
    timeout: timedelta | None = NONE_GIVEN,
    default: str = NONE_GIVEN,
) -> Presentation:
    """Check and bound a presentation. Raises `InvalidValue`, which names what is wrong and where."""
    found: list[Block] = [Paragraph(block) if isinstance(block, str) else block for block in blocks]
    if fields is not None:
        found.insert(0, Fields({str(name): _field(value) for name, value in fields.items()}))
    if len(found) > BLOCKS_MAX:
        raise InvalidValue(f"the presentation has {len(found)} blocks", hint=f"show at most {BLOCKS_MAX}")
    for number, block in enumerate(found, 1):
        if not isinstance(block, Block):
            raise InvalidValue(
                f"block {number} of the presentation is {block!r:.60}",
                hint="give texts, Paragraph, Section, Bullets, Fields, Preformatted or Diff",
            )
    for name, text in (("title", title), ("summary", summary)):
        if not isinstance(text, str) or not text.strip() or (name == "title" and "\n" in text):
            raise InvalidValue(f"the {name} of the presentation is {text!r:.60}", hint="give a plain text")
    plain = msgspec.to_builtins(Shown(title=title, summary=summary, blocks=tuple(found)))
    _check_texts(plain, "presentation")
    shown = canonical(plain, limit=PRESENTATION_BYTES_MAX, what="the presentation")
    data = None if subject is None else canonical(subject, limit=SUBJECT_BYTES_MAX, what="the subject")
    open_ms = timeout if timeout is None or timeout is NONE_GIVEN else to_ms(timeout, "timeout")
    return Presentation(shown, data, open_ms, default)


def _field(value: object) -> str:
    return value if isinstance(value, str) else canonical(value, what="a field").decode()


def _check_texts(value: object, where: str) -> None:
    """Every text is one that any screen can show."""
    if isinstance(value, str):
        bad = next(
            (char for char in value if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160),
            None,
        )
        if bad is not None:
            raise InvalidValue(
                f"a text of the {where} has the control character {bad!r}", hint="show plain text"
            )
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check_texts(key, where)
            _check_texts(inner, f"{where}.{key}" if isinstance(key, str) else where)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_texts(inner, where)
    else:
        raise InvalidValue(f"the {where} has {value!r:.60}", hint="a presentation has only texts")


# --- what the decorator is given ----------------------------------------------------------------------------------


def decision_spec(audience: Any, choices: Any, fault: Fault) -> DecisionSpec:
    """The same as data, or a `GraphError`."""
    if audience is NONE_GIVEN:
        fault.refuse("does not say who decides", 'write audience="operator"')
    if (
        not isinstance(audience, str)
        or not is_node_id(audience.replace("-", "_"))
        or len(audience) > ID_LENGTH_MAX
    ):
        fault.refuse(f"has audience={audience!r:.60}", 'write who decides, as a name: audience="operator"')
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not 1 <= len(choices) <= CHOICES_MAX:
        fault.refuse(
            "has no list of choices",
            f'write choices=[Choice("ship", "Ship it"), …], at most {CHOICES_MAX} of them',
        )
    seen: dict[str, ChoiceSpec] = {}
    for choice in choices:
        spec = _choice(choice, fault)
        if spec.id in seen:
            fault.refuse(f"has the choice {spec.id!r} twice", "remove one of the two")
        seen[spec.id] = spec
    return DecisionSpec(audience=audience, choices=tuple(seen.values()))


def _choice(choice: Any, fault: Fault) -> ChoiceSpec:
    if not isinstance(choice, Choice):
        fault.refuse(f"has {choice!r:.60} among its choices", 'write Choice("ship", "Ship it")')
    if not isinstance(choice.id, str) or not is_node_id(choice.id) or len(choice.id) > ID_LENGTH_MAX:
        fault.refuse(f"has a choice with the id {choice.id!r:.60}", "use letters, digits and '_'")
    _label(choice.label, f"choice {choice.id!r}", fault)
    text = choice.text
    if text is None:
        return ChoiceSpec(id=choice.id, label=choice.label)
    if not isinstance(text, Text):
        fault.refuse(
            f"has text={text!r:.60} for choice {choice.id!r}", 'write text=Text("What must change?")'
        )
    _label(text.label, f"the text of choice {choice.id!r}", fault)
    if type(text.max_chars) is not int or not 1 <= text.max_chars <= TEXT_CHARS_MAX:
        fault.refuse(
            f"has a text of at most {text.max_chars!r:.40} characters for choice {choice.id!r}",
            f"give a whole number from 1 to {TEXT_CHARS_MAX:,}",
        )
    spec = TextSpec(
        label=text.label,
        required=bool(text.required),
        multiline=bool(text.multiline),
        max_chars=text.max_chars,
    )
    return ChoiceSpec(id=choice.id, label=choice.label, text=spec)


def _label(label: Any, what: str, fault: Fault) -> None:
    good = isinstance(label, str) and label.strip() and "\n" not in label and len(label) <= CHOICE_CHARS_MAX
    try:
        _check_texts(label, what)
    except InvalidValue:
        good = False
    if not good:
        fault.refuse(f"has {what} with the label {label!r:.60}", "give one line of plain text")


def default_output(default: Any, spec: DecisionSpec, fault: Fault) -> Any:
    """The output that stands for a default, which names a choice; where none was given, that."""
    if default is NONE_GIVEN:
        return NONE_GIVEN
    wrong = (
        spec.fault(default, None) if isinstance(default, str) else ("is no choice", "name one of its choices")
    )
    if wrong is not None:
        fault.refuse(f"has default={default!r:.60}: {wrong[0]}", "name a choice that needs no text")
    return output_of(default, None)


def answer_schema(spec: DecisionSpec) -> dict[str, Any]:
    """The JSON Schema of the output."""
    return {
        "type": "object",
        "properties": {
            "choice": {"enum": [choice.id for choice in spec.choices]},
            "text": {"type": ["string", "null"]},
        },
        "required": ["choice", "text"],
        "additionalProperties": False,
    }


def presented(value: object, node_id: str) -> Presentation:
    """What a decision's function returned; a plain text is a summary."""
    if isinstance(value, Presentation):
        return value
    if isinstance(value, str):
        return present(value, (), title=node_id, fields=None, subject=None)
    raise InvalidArgument(
        f"node {node_id!r} returned {value!r:.60}, and must say what the person is shown",
        hint="return ctx.present(summary=…, fields={…}), or a text",
    )


def how_long_open(found: Presentation, spec: NodeSpec) -> tuple[int | None, str | None]:
    """For how many milliseconds this proposal is open (None: for ever), and the answer when none comes, as JSON.

    Raises `InvalidValue` where that does not fit to the choices or the ways out.
    """
    open_ms = spec.open_ms if found.open_ms is NONE_GIVEN else found.open_ms
    if found.default is NONE_GIVEN:
        default = None if open_ms is None else spec.default
    else:
        assert spec.decision is not None, "it is a decision's"
        wrong = spec.decision.fault(found.default, None)
        if wrong is not None:
            raise InvalidValue(
                f"the presentation has default={found.default!r:.60}: {wrong[0]}",
                hint="name a choice that needs no text",
            )
        default = canonical(output_of(found.default, None)).decode()
    said: tuple[str, str] | None = None
    if open_ms is not None:
        outcomes: set[str] = {way.outcome for way in spec.ways}
        said = unsettled(Deadline(open_ms=open_ms, default=default), spec.id, outcomes)
    elif default is not None:
        said = DEFAULT_FOR_EVER
    if said is not None:
        raise InvalidValue(f"the presentation {said[0]}", hint=said[1])
    return open_ms, default
