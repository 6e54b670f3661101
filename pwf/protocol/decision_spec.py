"""What a person is shown, what there is to choose, and what the digest of a decision binds.

Texts are checked when they are made: strings without control characters, bounded, so that whatever shows them (a
terminal, a page, a message) need not.
"""

from __future__ import annotations

from typing import Any

import msgspec

CHOICES_MAX = 20
CHOICE_CHARS_MAX = 4_000  # of a label
BLOCKS_MAX = 100
PRESENTATION_BYTES_MAX = 64 * 1024
SUBJECT_BYTES_MAX = 64 * 1024
TEXT_CHARS_MAX = 4_000  # of what a person may write


# --- the presentation -----------------------------------------------------------------------------------------


class Paragraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="paragraph", tag_field="block"):
    """A text."""

    text: str


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="section", tag_field="block"):
    """A heading."""

    title: str


class Bullets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="bullets", tag_field="block"):
    """A list."""

    items: tuple[str, ...]


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fields", tag_field="block"):
    """Names with their values."""

    fields: dict[str, str]


class Preformatted(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="preformatted", tag_field="block"
):
    """Lines that are shown as they stand."""

    text: str


class Diff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="diff", tag_field="block"):
    """Lines of which those that begin with `+` came, and those with `-` went."""

    text: str


Block = Paragraph | Section | Bullets | Fields | Preformatted | Diff


class Shown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The presentation, as the request's prompt has it."""

    title: str
    summary: str
    blocks: tuple[Block, ...] = ()


shown_of = msgspec.json.Decoder(Shown).decode


# --- choices --------------------------------------------------------------------------------------------------


class TextSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person writes with a choice."""

    label: str
    required: bool = True
    multiline: bool = True
    max_chars: int = TEXT_CHARS_MAX


class ChoiceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to choose."""

    id: str
    label: str
    text: TextSpec | None = None


class DecisionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who decides, and between what."""

    audience: str
    choices: tuple[ChoiceSpec, ...]

    def choice(self, choice_id: str) -> ChoiceSpec | None:
        """The choice of this id."""
        return next((choice for choice in self.choices if choice.id == choice_id), None)

    def fault(self, choice_id: str, text: str | None) -> tuple[str, str] | None:
        """(what is wrong with this answer, what would be right); None where it can be taken."""
        choice = self.choice(choice_id)
        if choice is None:
            return f"there is no choice {choice_id!r}", "choose " + ", ".join(one.id for one in self.choices)
        wanted = choice.text
        if wanted is None:
            if text is not None:
                return f"choice {choice_id!r} takes no text", "leave the text out"
            return None
        if text is None or not text.strip():
            if wanted.required:
                return f"choice {choice_id!r} needs a text: {wanted.label}", "give it with --text"
            return None
        if len(text) > wanted.max_chars:
            return (
                f"the text has {len(text):,} characters, and choice {choice_id!r} takes {wanted.max_chars:,}",
                "make it shorter",
            )
        return text_fault(text, multiline=wanted.multiline)


def text_fault(text: str, *, multiline: bool) -> tuple[str, str] | None:
    """What is wrong with a person's text as such."""
    allowed = "\n\t" if multiline else "\t"
    if any((not char.isprintable() and char not in allowed and ord(char) < 0xA0) for char in text):
        what = "control characters" if multiline else "control characters or more than one line"
        return f"the text has {what}", "write plain text"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "the text has half a character", "write plain text"
    return None


def output_of(choice_id: str, text: str | None) -> dict[str, str | None]:
    """The output of the node that asked."""
    return {"choice": choice_id, "text": text if text and text.strip() else None}


def digest_facts(
    *,
    run_id: str,
    node: str,
    visit: int,
    decision: DecisionSpec,
    title: str,
    presentation: str,
    subject: str | None,
    timeout_ms: int | None,
    default: str | None,
) -> dict[str, Any]:
    """What the digest of a decision binds. `presentation` and `subject`: digests of these."""
    return {
        "run": run_id,
        "node": node,
        "visit": visit,
        "audience": decision.audience,
        "choices": msgspec.to_builtins(decision.choices),
        "title": title,
        "presentation": presentation,
        "subject": subject,
        "timeout_ms": timeout_ms,
        "default": default,
    }
