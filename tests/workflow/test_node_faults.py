"""Every mistake in one node is one error when it loads, which names the node, the line and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workflow.author import HEAD, assert_refused, load

TWO = """\
@flow.compute
def first(ctx): return 1
@flow.compute
def second(ctx): return 2
"""  # lines 5 to 8

# the file's text after HEAD, the line that is named, what the message says, what the hint says
CASES: dict[str, tuple[str, int, list[str], list[str]]] = {
    "two nodes of one name": (
        TWO + "@flow.compute\ndef first(ctx): ...",
        9,
        ["'first'", "name of another node", "sample.py:5"],
        ["rename"],
    ),
    "a name that no id may have": (
        "@flow.compute\ndef größe(ctx): ...",
        5,
        ["'größe'", "not allowed"],
        ["rename the function", "letters"],
    ),
    "a lambda without an id": ("flow.compute(lambda ctx: 1)", 5, ["<lambda>"], ['id="…"']),
    "a bad id": ("@flow.compute(id='a-b')\ndef x(ctx): ...", 5, ["'a-b'"], ["change id="]),
    "a function without ctx": ("@flow.compute\ndef x(): ...", 5, ["'x'", "too many positional"], ["ctx"]),
    "a function of two": ("@flow.compute\ndef x(ctx, y): ...", 5, ["'y'"], ["one argument, ctx"]),
    "a generator": ("@flow.compute\ndef x(ctx): yield 1", 5, ["yields"], ["as a list"]),
    "an async generator": ("@flow.compute\nasync def x(ctx): yield 1", 5, ["yields"], ["as a list"]),
    "two decorators": (
        "@flow.compute\n@flow.compute\ndef x(ctx): ...",
        5,
        ["compute node already"],
        ["remove one"],
    ),
    "no function": ("flow.compute(3)", 5, ["not a function"], ["above a def"]),
    "a number as timeout": (
        "@flow.compute(timeout=20)\ndef x(ctx): ...",
        5,
        ["'x'", "timeout is 20", "no unit"],
        ["seconds(20)"],
    ),
    "a timeout of nothing": ("@flow.compute(timeout=seconds(0))\ndef x(ctx): ...", 5, ["longer than"], []),
    "a number as retry": ("@flow.compute(retry=3)\ndef x(ctx): ...", 5, ["retry=3"], ["Retry(3)"]),
    "no tries": ("@flow.compute(retry=Retry(0))\ndef x(ctx): ...", 5, ["times=0"], []),
    "a shrinking backoff": (
        "@flow.compute(retry=Retry(2, factor=0.5))\ndef x(ctx): ...",
        5,
        ["factor=0.5"],
        [],
    ),
    "a number as backoff": (
        "@flow.compute(retry=Retry(2, 5))\ndef x(ctx): ...",
        5,
        ["backoff"],
        ["seconds(20)"],
    ),
    "compute with an effect": (
        "@flow.compute(effect=idempotent('x'))\ndef x(ctx): ...",
        5,
        ["declares an effect"],
        ["@flow.action"],
    ),
    "an action without an effect": (
        "@flow.action()\ndef x(ctx): ...",
        5,
        ["must say what effect"],
        ['idempotent("x")', 'manual("x"'],
    ),
    "a bare action": ("@flow.action\ndef x(ctx): ...", 5, ["must say what effect"], ['idempotent("x")']),
    "a bare shell": ("@flow.shell\ndef x(ctx): ...", 5, ["must say what effect"], ["@flow.shell(effect="]),
    "idempotent, not called": (
        "@flow.action(effect=idempotent)\ndef x(ctx): ...",
        5,
        ["effect=<function idempotent"],
        ['idempotent("x")'],
    ),
    "an effect without a name": (
        "@flow.action(effect=idempotent(''))\ndef x(ctx): ...",
        5,
        ["type ''"],
        ["upload"],
    ),
    "observe that is no function": (
        "@flow.action(effect=manual('x', observe=3))\ndef x(ctx): ...",
        5,
        ["observe=3"],
        ["def look(ctx)"],
    ),
    "observe of nothing": (
        "@flow.action(effect=manual('x', observe=lambda: 1))\ndef x(ctx): ...",
        5,
        ["observe="],
        ["ctx"],
    ),
    "observe that is a node": (
        TWO + "@flow.action(effect=manual('x', observe=first))\ndef x(ctx): ...",
        9,
        ["observe=<compute node"],
        ["not a node"],
    ),
    "a manual effect with retry and no observe": (
        "@flow.action(effect=manual('pay'), retry=Retry(3))\ndef pay(ctx): ...",
        5,
        ["action node 'pay'", "retry and a manual effect"],
        ["add observe="],
    ),
    "a manual effect that times out unobserved": (
        "@flow.action(effect=manual('pay'))\ndef pay(ctx): ...\n@flow.compute\ndef end(ctx): ...\n"
        "flow.graph(pay >> end, pay.on('timed_out') >> end)",
        9,
        ["'pay'", "nobody knows"],
        ["add observe="],
    ),
    "a way out of a timeout that never comes": (
        "@flow.compute(timeout=None)\ndef x(ctx): ...\nflow.graph(x.on('timed_out') >> x)",
        7,
        ["'x'", "timeout=None"],
        ["give 'x' a timeout"],
    ),
    "a wait that fails": (
        "@flow.wait\ndef nap(ctx): ...\nflow.graph(nap.on('failed') >> nap)",
        7,
        ["wait node 'nap' fails, which never happens"],
        ["its time has come"],
    ),
    "a notice that fails": (
        "@flow.notify\ndef say(ctx): ...\nflow.graph(say.on('failed') >> say)",
        7,
        ["notify node 'say' fails, which never happens"],
        ["however it did"],
    ),
    "a notice that decides": (
        "@flow.notify\ndef say(ctx): ...\n@flow.compute\ndef x(ctx): ...\nflow.graph(say.switch(a=x))",
        9,
        ["switch of 'say'", "whatever became of it"],
        ["say >> node"],
    ),
    "a notice of another kind": (
        "@flow.notify(kind='loud')\ndef say(ctx): ...",
        5,
        ["'say'", "kind 'loud'"],
        ["kind='progress' or kind='final'"],
    ),
    "a notice that is tried again": (
        "@flow.notify(retry=Retry(2))\ndef say(ctx): ...",
        5,
        ["'say'"],
        [],
    ),
    "a checkpoint that times out": (
        "@flow.checkpoint\ndef ask(ctx): ...\nflow.graph(ask.on('timed_out') >> ask)",
        7,
        ["nobody answers node 'ask' in time, which waits for ever"],
        ["give 'ask' a timeout"],
    ),
    "a wait with retry": (
        "@flow.wait(retry=Retry(2))\ndef nap(ctx): ...",
        5,
        ["'nap'", "has retry"],
        ["leave"],
    ),
    "a wait with a timeout": (
        "@flow.wait(timeout=seconds(5))\ndef nap(ctx): ...",
        5,
        ["timeout"],
        ["leave it"],
    ),
    "a deadline without what follows": (
        "@flow.checkpoint(timeout=hours(1))\ndef ask(ctx): ...",
        5,
        ["'ask'", "nothing says what follows"],
        ["default=", 'ask.on("timed_out")'],
    ),
    "a deadline with both": (
        "@flow.checkpoint(timeout=hours(1), default=1)\ndef ask(ctx): ...\n"
        "flow.graph(ask.on('timed_out') >> ask)",
        5,
        ["'ask'", "never taken"],
        ["remove one"],
    ),
    "a default without a deadline": (
        "@flow.checkpoint(default=None)\ndef ask(ctx): ...",
        5,
        ["'ask'", "waits for ever"],
        ["timeout="],
    ),
    "a number as deadline": (
        "@flow.checkpoint(timeout=20, default=1)\ndef ask(ctx): ...",
        5,
        ["'ask'", "no unit"],
        ["seconds(20)"],
    ),
    "a default of another type": (
        "@flow.checkpoint(returns=Literal['a', 'b'], timeout=hours(1), default='c')\ndef ask(ctx): ...",
        5,
        ["'ask'", "not of the declared type", "'c'"],
        ["what an answer could be"],
    ),
    "a default that is no JSON": (
        "@flow.checkpoint(timeout=hours(1), default=float('nan'))\ndef ask(ctx): ...",
        5,
        ["'ask'", "can not be kept"],
        [],
    ),
    "a large default": (
        "@flow.checkpoint(timeout=hours(1), default='x' * 5_000)\ndef ask(ctx): ...",
        5,
        ["'ask'", "can not be kept", "4,096"],
        [],
    ),
    "a default without a case": (
        "@flow.checkpoint(timeout=hours(1), default='c')\ndef ask(ctx): ...\n"
        "@flow.compute\ndef b(ctx): ...\n"
        "flow.graph(ask.switch(a=b))",
        5,
        ["'ask'", "leads nowhere", "'c'"],
        ["what an answer could be"],
    ),
    "a decision without a timeout": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A')])\ndef ask(ctx): ...",
        5,
        ["'ask'", "how long it is open"],
        ["timeout=hours(1)", "timeout=None"],
    ),
    "a decision without an audience": (
        "@flow.decision(audience='', choices=[Choice('a', 'A')], timeout=None)\ndef ask(ctx): ...",
        5,
        ["'ask'", "audience=''"],
        ['audience="operator"'],
    ),
    "a decision of which nothing is said": (
        "@flow.decision\ndef ask(ctx): ...",
        5,
        ["decision node 'ask'", "does not say who decides"],
        ['write audience="operator"'],
    ),
    "a decision that leaves choices out": (
        "@flow.decision(audience='ops', timeout=None)\ndef ask(ctx): ...",
        5,
        ["decision node 'ask'", "has no list of choices"],
        ["choices=[Choice("],
    ),
    "a decision without choices": (
        "@flow.decision(audience='ops', choices=[], timeout=None)\ndef ask(ctx): ...",
        5,
        ["'ask'", "no list of choices"],
        ["Choice("],
    ),
    "a choice that is none": (
        "@flow.decision(audience='ops', choices=['ship'], timeout=None)\ndef ask(ctx): ...",
        5,
        ["'ship' among its choices"],
        ["Choice("],
    ),
    "a choice twice": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A'), Choice('a', 'B')], timeout=None)\n"
        "def ask(ctx): ...",
        5,
        ["'ask'", "'a' twice"],
        ["remove one"],
    ),
    "a choice with an id that can not be typed": (
        "@flow.decision(audience='ops', choices=[Choice('ship it', 'A')], timeout=None)\ndef ask(ctx): ...",
        5,
        ["'ship it'"],
        ["letters"],
    ),
    "a label of two lines": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A\\nB')], timeout=None)\ndef ask(ctx): ...",
        5,
        ["choice 'a'", "label"],
        ["one line"],
    ),
    "a default that is no choice": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A')], timeout=hours(1), default='b')\n"
        "def ask(ctx): ...",
        5,
        ["'ask'", "no choice 'b'"],
        ["name a choice"],
    ),
    "a default that needs a text": (
        "from pwf import Text\n"
        "@flow.decision(audience='ops', choices=[Choice('a', 'A', text=Text('Why?'))], timeout=hours(1),"
        " default='a')\ndef ask(ctx): ...",
        6,
        ["'ask'", "needs a text"],
        ["needs no text"],
    ),
    "a text with a bound that is none": (
        "from pwf import Text\n"
        "@flow.decision(audience='ops', choices=[Choice('a', 'A', text=Text('Why?', max_chars=0))], timeout=None)\n"
        "def ask(ctx): ...",
        6,
        ["at most 0 characters"],
        ["from 1 to 4,000"],
    ),
    "a decision that is open for a time, and nothing follows": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A')], timeout=hours(1))\ndef ask(ctx): ...",
        5,
        ["nothing says what follows"],
        ["default="],
    ),
    "a choice without a way": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A'), Choice('b', 'B')], timeout=None)\n"
        "def ask(ctx): ...\n"
        "@flow.compute\ndef end(ctx): ...\n"
        "flow.graph(ask.switch(a=end))",
        9,
        ["'choice' of 'ask'", "no case for 'b'"],
        ["b=node"],
    ),
    "a way for no choice": (
        "@flow.decision(audience='ops', choices=[Choice('a', 'A')], timeout=None)\n"
        "def ask(ctx): ...\n"
        "@flow.compute\ndef end(ctx): ...\n"
        "flow.graph(ask.switch(a=end, b=end))",
        9,
        ["'choice' of 'ask'", "a case for 'b', which never comes"],
        ["'a'"],
    ),
    "a checkpoint with retry": (
        "@flow.checkpoint(retry=Retry(2))\ndef ask(ctx): ...",
        5,
        ["retry"],
        ["leave"],
    ),
    "a checkpoint with an effect": (
        "@flow.checkpoint(effect=idempotent('x'))\ndef ask(ctx): ...",
        5,
        ["declares an effect"],
        [],
    ),
    "an agent without a type": (
        "@flow.agent()\ndef review(ctx): ...",
        5,
        ["agent node 'review'", "what the agent shall give"],
        ["returns=TYPE"],
    ),
    "a validate that takes no value": (
        "@flow.agent(returns=bool, validate=lambda ctx: None)\ndef review(ctx): ...",
        5,
        ["agent node 'review'", "validate= that can not be called"],
        ["let it take two arguments, ctx and what was submitted"],
    ),
    "tools that are one text": (
        "@flow.agent(returns=bool, tools='read')\ndef review(ctx): ...",
        5,
        ["has tools='read'"],
        ["write a tuple of: read, search"],
    ),
    "tools that are a number": (
        "@flow.agent(returns=bool, tools=5)\ndef review(ctx): ...",
        5,
        ["agent node 'review'", "has tools=5"],
        ["write a tuple of: read, search"],
    ),
    "tools that are a set": (
        "@flow.choose('a', 'b', tools={'read'})\ndef review(ctx): ...",
        5,
        ["has tools={'read'}"],
        ["write a tuple of: read, search"],
    ),
    "a tool of an agent's own": (
        "@flow.agent(returns=bool, tools=('read', 'bash'))\ndef review(ctx): ...",
        5,
        ["has the tool 'bash'"],
        ["write a tuple of: read, search"],
    ),
    "a validate that is no function": (
        "@flow.agent(returns=bool, validate='yes')\ndef review(ctx): ...",
        5,
        ["has validate='yes', which is not a plain function"],
        ["def check(ctx, value): …"],
    ),
    "a choice without choices": (
        "@flow.choose('ship')\ndef route(ctx): ...",
        5,
        ["@flow.choose has ('ship',)", "two texts or more"],
        ['@flow.choose("ship", "fix")'],
    ),
    "a choice that stands there twice": (
        "@flow.choose('ship', 'fix', 'ship')\ndef route(ctx): ...",
        5,
        ["@flow.choose has 'ship' twice"],
        ["each choice stands there once"],
    ),
    "a choice that no case takes": (
        "@flow.choose('ship', 'fix')\ndef route(ctx): ...\nflow.graph(route.switch(ship=route))",
        7,
        ["route", "fix"],
        [],
    ),
    # --- shell options
    "a shell string without a shell": (
        "@flow.shell(effect=idempotent('x'))\ndef x(ctx) -> str: return 'ls'",
        5,
        ["returns a string"],
        ['["git", "log"]', "shell="],
    ),
    "a shell that is no text": (
        "@flow.shell(effect=idempotent('x'), shell=True)\ndef x(ctx): ...",
        5,
        ["shell=True"],
        ['shell="/bin/sh"'],
    ),
    "no exit code": (
        "@flow.shell(effect=idempotent('x'), ok_exit_codes=())\ndef x(ctx): ...",
        5,
        ["ok_exit_codes=()"],
        ["0 to 255"],
    ),
    "an exit code of a signal": (
        "@flow.shell(effect=idempotent('x'), ok_exit_codes=-9)\ndef x(ctx): ...",
        5,
        ["ok_exit_codes=-9"],
        ["0 to 255"],
    ),
    "a mistyped parser": (
        "@flow.shell(effect=idempotent('x'), parse='jsn')\ndef x(ctx): ...",
        5,
        ["parse='jsn'"],
        ["did you mean 'json'?"],
    ),
    "a parser of nothing": (
        "@flow.shell(effect=idempotent('x'), parse=lambda: 1)\ndef x(ctx): ...",
        5,
        ["parse="],
        ["(result)"],
    ),
    "on_line of one": (
        "@flow.shell(effect=idempotent('x'), on_line=lambda line: None)\ndef x(ctx): ...",
        5,
        ["on_line="],
        ["(ctx, line, stream)"],
    ),
    "an async on_line": (
        "async def see(ctx, line, stream): ...\n"
        "@flow.shell(effect=idempotent('x'), on_line=see)\ndef x(ctx): ...",
        6,
        ["async function as on_line="],
        ["plain function"],
    ),
    "a number in env": (
        "@flow.shell(effect=idempotent('x'), env={'N': 3})\ndef x(ctx): ...",
        5,
        ["env['N'] is 3"],
        ["str(3)"],
    ),
    "a variable that can not be": (
        "@flow.shell(effect=idempotent('x'), env={'A=B': 'c'})\ndef x(ctx): ...",
        5,
        ["'A=B'"],
        [],
    ),
    "no output": (
        "@flow.shell(effect=idempotent('x'), max_output=0)\ndef x(ctx): ...",
        5,
        ["max_output=0"],
        ["bytes"],
    ),
    "a number as stdin": (
        "@flow.shell(effect=idempotent('x'), stdin=3)\ndef x(ctx): ...",
        5,
        ["stdin=3"],
        ["text, bytes or a plain function"],
    ),
    # --- types
    "a result that has no JSON": (
        "import pathlib\n@flow.compute\ndef x(ctx) -> pathlib.Path: ...",
        6,
        ["Path has no form in JSON"],
        ["msgspec Struct"],
    ),
    "bytes as a result": ("@flow.compute\ndef x(ctx) -> bytes: ...", 5, ["bytes"], ["msgspec Struct"]),
    "bytes inside a result": (
        "class Out(msgspec.Struct):\n    data: list[bytes]\n@flow.compute\ndef x(ctx) -> Out: ...",
        7,
        ["Out holds bytes"],
        [],
    ),
    "an annotation that is not there": (
        "@flow.compute\ndef x(ctx) -> 'Missing': ...",
        5,
        ["'x'", "'Missing' is not defined"],
        ["import the type for real"],
    ),
    "a JSON Schema that is none": (
        "@flow.checkpoint(returns={'type': 'objekt'})\ndef ask(ctx): ...",
        5,
        ["'ask'", "JSON Schema is not valid"],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_with_its_line_and_its_fix(name: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, *CASES[name])


def test_names_of_an_enclosing_function_may_be_annotations(tmp_path: Path) -> None:
    text = """
    def make():
        class Local(msgspec.Struct):
            a: int
        @flow.compute
        def x(ctx) -> "Local": ...
        return Local
    Local = None
    make()
    """
    flow = load(tmp_path, text, head="from __future__ import annotations\n" + HEAD)
    assert flow.nodes["x"].returns.__name__ == "Local"


def test_a_name_defined_below_its_function_may_be_an_annotation(tmp_path: Path) -> None:
    text = "@flow.compute\ndef x(ctx) -> 'Later': ...\nclass Later(msgspec.Struct):\n    a: int"
    assert load(tmp_path, text).nodes["x"].returns.__name__ == "Later"


def test_a_broken_parameter_annotation_harms_nothing(tmp_path: Path) -> None:
    flow = load(tmp_path, "@flow.compute\ndef x(ctx: 'Nowhere') -> int: ...")
    assert flow.nodes["x"].returns is int
