"""Shell nodes as data: commands, options, exact bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwf.errors import InvalidValue
from pwf.values import canonical
from pwf.workflow.shell import Captured, ShellOptions, ShellResult
from tests.workflow.author import load


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 10**12))
def test_captured_bytes_are_kept_exactly(data: bytes, dropped: int) -> None:
    captured = Captured.of(data, dropped)
    again = msgspec.json.decode(canonical(captured), type=Captured)
    assert again == captured
    lost = captured.dropped - dropped
    assert again.data == data[: len(data) - lost]
    assert lost <= 3
    assert lost == 0 or dropped


def test_bytes_that_are_no_text_show_replacement_marks() -> None:
    captured = Captured.of(b"\xc6\x00\xff\xfe")
    assert captured.text is None
    assert captured.data == b"\xc6\x00\xff\xfe"
    assert str(captured) == "\ufffd\x00\ufffd\ufffd"


def test_a_cap_in_the_middle_of_a_character_keeps_the_text_before_it() -> None:
    assert Captured.of("aé".encode()[:2], dropped=5) == Captured(text="a", dropped=6)
    assert Captured.of("aé".encode()[:2]).base64 is not None


def test_a_result_as_json_is_small_and_flat() -> None:
    result = ShellResult(
        exit_code=1, stdout_captured=Captured.of(b"hi\n"), stderr_captured=Captured.of(b"\xff", 7)
    )
    assert canonical(result) == (
        b'{"exit_code":1,"leftovers":0,"parsed":null,'
        b'"stderr":{"base64":"/w==","dropped":7},"stdout":{"text":"hi\\n"}}'
    )
    assert (result.stdout, result.stdout_bytes, result.stdout_dropped) == ("hi\n", b"hi\n", 0)
    assert (result.stderr, result.stderr_bytes, result.stderr_dropped) == ("\ufffd", b"\xff", 7)


def test_a_command_is_a_list_of_words() -> None:
    assert ShellOptions().argv(["ls", Path("/a b"), ""]) == ["ls", "/a b", ""]
    assert ShellOptions().argv(("ls",)) == ["ls"]


def test_a_string_needs_an_explicit_shell(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="'x' returned a string") as caught:
        ShellOptions(node="x").argv("ls | wc")
    assert '@flow.shell(shell="/bin/sh"' in (caught.value.hint or "")
    text = "@flow.shell(effect=idempotent('x'), shell={})\ndef x(ctx) -> str: ..."
    for given_shell, words in (
        ("'/bin/sh'", ["/bin/sh", "-c"]),
        ("['/bin/bash', '-euc']", ["/bin/bash", "-euc"]),
    ):
        options = load(tmp_path, text.format(given_shell)).nodes["x"].shell
        assert options is not None
        assert options.argv("ls | wc") == [*words, "ls | wc"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "returned None, which is not a command"),
        ([], "not a command"),
        (b"ls", "not a command"),
        ({"ls": 1}, "not a command"),
        (["ls", 3], "word 1 of the command of shell node 'x' is 3, not text"),
        (["ls", "a\0b"], "word 1 .* NUL"),
    ],
)
def test_what_is_no_command_is_named(command: object, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        ShellOptions(node="x").argv(command)


def test_options_may_be_functions_of_ctx() -> None:
    options = ShellOptions(
        node="x",
        cwd=lambda ctx: Path("sub") / ctx,
        env=lambda ctx: {"NAME": ctx},
        stdin=lambda ctx: ctx + "\n",
    )
    assert options.folder("a") == "sub/a"
    assert options.variables("a") == {"NAME": "a"}
    assert options.input_bytes("a") == b"a\n"
    nothing = ShellOptions()
    assert (nothing.folder(None), nothing.variables(None), nothing.input_bytes(None)) == (None, {}, None)


@pytest.mark.parametrize(
    ("options", "method", "said"),
    [
        (ShellOptions(node="x", cwd=lambda ctx: 3), "folder", "cwd of shell node 'x' is 3"),  # type: ignore[arg-type,return-value]
        (ShellOptions(node="x", env=lambda ctx: [1]), "variables", "env of shell node 'x' is"),  # type: ignore[arg-type,return-value]
        (ShellOptions(node="x", env=lambda ctx: {"N": 1}), "variables", "env of shell node 'x': N is 1"),  # type: ignore[dict-item]
        (ShellOptions(node="x", env=lambda ctx: {"": "1"}), "variables", "the name ''"),
        (ShellOptions(node="x", stdin=lambda ctx: {}), "input_bytes", "stdin of shell node 'x' is a dict"),  # type: ignore[arg-type,return-value]
    ],
)
def test_a_function_that_gives_something_else_is_named(options: ShellOptions, method: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        getattr(options, method)(None)


@pytest.mark.parametrize(
    ("parse", "stdout", "parsed"),
    [
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("lines", b"a\nb\r\n\n", ["a", "b\r", ""]),
        ("lines", b"", []),
        ("lines", b"end", ["end"]),
        (lambda result: len(result.stdout_bytes), b"\xff\xff", 2),
        (None, b"{", None),
    ],
)
def test_output_is_parsed(parse: Any, stdout: bytes, parsed: object) -> None:
    result = ShellOptions(parse=parse).result(0, Captured.of(stdout), Captured.of(b""))
    assert result.parsed == parsed
    assert result.stdout_bytes == stdout


@pytest.mark.parametrize("stdout", [b"{", b'{"a":1,"a":2}', b"NaN", b"\xff"])
def test_output_that_is_no_json_fails_and_says_so(stdout: bytes) -> None:
    with pytest.raises(InvalidValue, match="stdout of shell node 'x' is not"):
        ShellOptions(node="x", parse="json").result(0, Captured.of(stdout), Captured.of(b""))


@pytest.mark.parametrize("parse", ["json", "lines"])
def test_output_that_was_cut_is_never_parsed_in_silence(parse: Any) -> None:
    with pytest.raises(InvalidValue, match="it is 1,000 bytes longer than max_output=10"):
        ShellOptions(node="x", parse=parse, max_output=10).result(
            0, Captured.of(b"[1]", 1000), Captured.of(b"")
        )


def test_a_line_may_become_an_update() -> None:
    def see(ctx: object, line: str, stream: str) -> dict[str, Any] | None:
        return {"label": line, "key": stream} if line else None

    options = ShellOptions(node="x", on_line=see)
    update = options.update(None, "50 %", "stderr")
    assert update is not None
    assert (update.type, update.key, update.data) == ("progress", "stderr", {"label": "50 %"})
    assert options.update(None, "", "stdout") is None
    assert ShellOptions().update(None, "x", "stdout") is None
    bare = ShellOptions(node="x", on_line=lambda ctx, line, stream: {"type": "t"}).update(None, "", "stdout")
    assert bare is not None
    assert (bare.type, bare.key, bare.data) == ("t", "x", {})
    with pytest.raises(InvalidValue, match="on_line of shell node 'x' returned 3"):
        ShellOptions(node="x", on_line=lambda ctx, line, stream: 3).update(None, "", "stdout")  # type: ignore[arg-type,return-value]
