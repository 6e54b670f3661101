"""Patches on settings: the public cases of RFC 6902, and what each actor may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwf.actors.code.settings_patch import patch_of, patched, visible
from pwf.errors import Conflict, InvalidArgument, PwfError, Rejected, ValueTooLarge
from pwf.protocol.settings import Access, PathRule, SettingsSpec
from pwf.values import canonical
from tests.scaling import growth

FOLDER = Path(__file__).parents[1] / "data" / "json-patch"
ALL: tuple[Access, ...] = ("read", "add", "remove", "replace")
FREE = SettingsSpec(initial="{}", paths=(PathRule(path="", may={"human": ALL}),))
CASES = [
    case
    for name in ("tests", "spec_tests")
    for case in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    if "patch" in case and not case.get("disabled")
]


def rules(**paths: dict[Any, tuple[Access, ...]]) -> SettingsSpec:
    """Of paths with `_` for `/`; `root` is the whole."""
    found = tuple(
        PathRule(path="" if path == "root" else "/" + path.replace("_", "/"), may=may)
        for path, may in paths.items()
    )
    return SettingsSpec(initial="{}", paths=found)


def change(spec: SettingsSpec, value: Any, *patch: dict[str, Any], actor: Any = "human") -> Any:
    return json.loads(patched(spec, canonical(value), list(patch), actor))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.get("comment", "")[:60])
def test_a_public_case_of_json_patch(case: dict[str, Any]) -> None:
    try:
        patch = patch_of(json.dumps(case["patch"]).encode())
        found = patched(FREE, canonical(case["doc"]), patch, "human")
    except (Conflict, InvalidArgument):
        assert "error" in case
        return
    assert "error" not in case
    if "expected" in case:
        assert found == canonical(case["expected"])


def test_a_mistyped_name_is_told_as_one_and_names_nothing_that_may_not_be_read() -> None:
    spec = rules(
        root={"human": ("read",)}, pause={"human": ("read", "replace")}, pass_={"session": ("read",)}
    )
    value = {"pause": 1, "pass": {"": 2}}
    for op in ("add", "replace", "remove"):
        with pytest.raises(Rejected, match=r"there is no '/puase' in .*did you mean '/pause'") as caught:
            change(spec, value, {"op": op, "path": "/puase", "value": 3})
        assert ("a person may not add it" in str(caught.value)) == (op == "add")
    with pytest.raises(Rejected, match=r"there is no '/zzz' in the settings, and a person may not add it$"):
        change(spec, value, {"op": "add", "path": "/zzz", "value": 3})
    hidden = rules(pause={"session": ("read",)})
    with pytest.raises(Rejected, match=r"^a person may not add '/puase' of the settings$"):
        change(hidden, value, {"op": "add", "path": "/puase", "value": 3})


OPS: list[dict[str, Any]] = [
    {"op": "add", "path": "/b", "value": 1},
    {"op": "replace", "path": "/a", "value": 1},
    {"op": "remove", "path": "/a"},
    {"op": "test", "path": "/a", "value": 0},
    {"op": "add", "path": "/a", "value": 1},
    {"op": "copy", "from": "/a", "path": "/b"},
    {"op": "move", "from": "/a", "path": "/b"},
]


@pytest.mark.parametrize("actor", ["human", "session", "manager"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op['op']}{op['path']}")
def test_nothing_is_allowed_that_is_not_said(op: dict[str, Any], actor: Any) -> None:
    with pytest.raises(Rejected, match="may not"):
        change(SettingsSpec(initial="{}"), {"a": 0}, op, actor=actor)


@pytest.mark.parametrize(
    ("op", "needed"),
    list(
        zip(
            OPS,
            [
                ("add",),
                ("replace",),
                ("remove",),
                ("read",),
                ("replace",),
                ("read", "add"),
                ("read", "remove", "add"),
            ],
            strict=True,
        )
    ),
    ids=lambda part: str(part)[:30],
)
def test_each_operation_needs_what_it_does_and_no_more(
    op: dict[str, Any], needed: tuple[Access, ...]
) -> None:
    change(rules(root={"human": needed}), {"a": 0}, op)
    for missing in needed:
        fewer = tuple(one for one in needed if one != missing)
        with pytest.raises(Rejected, match=f"a person may not {missing}"):
            change(rules(root={"human": fewer}), {"a": 0}, op)


def test_the_longest_path_decides_alone() -> None:
    spec = rules(
        root={"human": ALL, "session": ALL}, limits={"human": ("read",)}, limits_cpu={"session": ("replace",)}
    )
    value = {"limits": {"cpu": 1, "memory": 2}, "other": 3}
    for path, human, session in (
        ("/other", True, True),
        ("/limits/memory", False, False),
        ("/limits/cpu", False, True),
    ):
        op = {"op": "replace", "path": path, "value": 9}
        for actor, may in (("human", human), ("session", session)):
            if may:
                change(spec, value, op, actor=actor)
            else:
                with pytest.raises(Rejected):
                    change(spec, value, op, actor=actor)


@pytest.mark.parametrize(
    "op",
    [
        {"op": "replace", "path": "", "value": {"a": {"open": 2}}},
        {"op": "replace", "path": "/a", "value": {"open": 1, "shut": 2}},
        {"op": "remove", "path": "/a"},
        {"op": "add", "path": "/a", "value": 4},
        {"op": "move", "from": "/a", "path": "/b"},
    ],
)
def test_what_is_guarded_below_a_path_is_guarded_from_the_whole_of_it(op: dict[str, Any]) -> None:
    spec = rules(root={"human": ALL}, a_shut={"human": ("read",)})
    with pytest.raises(Rejected, match="'/a/shut'"):
        change(spec, {"a": {"open": 1, "shut": 1}}, op)
    same = {"op": "replace", "path": "/a", "value": {"open": 5, "shut": 1}}
    assert change(spec, {"a": {"open": 1, "shut": 1}}, same) == {"a": {"open": 5, "shut": 1}}


def test_what_is_guarded_and_not_there_needs_leave_to_be_added_and_none_to_stay_away() -> None:
    whole = {"op": "replace", "path": "/a", "value": {"open": 2}}
    more = {"op": "replace", "path": "/a", "value": {"shut": 2}}
    spec = rules(root={"human": ALL}, a_shut={"human": ("read", "remove", "replace")})
    assert change(spec, {"a": {}}, whole) == {"a": {"open": 2}}
    with pytest.raises(Rejected, match="may not add '/a/shut'"):
        change(spec, {"a": {}}, more)
    adding = rules(root={"human": ALL}, a_shut={"human": ("read", "add")})
    assert change(adding, {"a": {}}, more) == {"a": {"shut": 2}}


@pytest.mark.parametrize(
    "op", [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "test", "path": "", "value": {}}]
)
def test_what_may_not_be_read_is_neither_copied_nor_guessed(op: dict[str, Any]) -> None:
    spec = rules(root={"human": ALL}, a_secret={"human": ("replace",)})
    with pytest.raises(Rejected, match="may not read '/a/secret'"):
        change(spec, {"a": {"secret": 1}}, op)


LIST = rules(root={"human": ALL}, l_1={"human": ()})


@pytest.mark.parametrize(
    "op",
    [
        {"op": "add", "path": "/l/0", "value": 9},
        {"op": "add", "path": "/l/1", "value": 9},
        {"op": "remove", "path": "/l/0"},
        {"op": "move", "from": "/l/0", "path": "/x"},
        {"op": "move", "from": "/x", "path": "/l/0"},
        {"op": "move", "from": "/l/2", "path": "/l/0"},
        {"op": "copy", "from": "/l/0", "path": "/l/0"},
        {"op": "remove", "path": "/l"},
    ],
)
def test_a_guarded_item_of_a_list_keeps_its_place(op: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="'/l/1'"):
        change(LIST, {"l": [1, 2, 3], "x": 4}, op)


def test_items_after_a_guarded_one_may_come_and_go() -> None:
    appended, removed = {"op": "add", "path": "/l/-", "value": 4}, {"op": "remove", "path": "/l/2"}
    assert change(LIST, {"l": [1, 2, 3]}, appended, removed) == {"l": [1, 2, 4]}
    with pytest.raises(Rejected, match="'/l/1'"):
        change(LIST, {"l": [1]}, appended)


def test_what_may_be_replaced_but_not_read_is_not_shifted_to_where_it_may() -> None:
    spec = rules(root={"human": ALL}, l_1={"human": ("add", "replace")}, l_2_s={"human": ALL[1:]})
    for document, path in (
        ({"l": [1, 2]}, "/l/0"),
        ({"l": [1, 2]}, "/l/1"),
        ({"l": [1, {}, {"s": 1}]}, "/l/2"),
    ):
        with pytest.raises(Rejected, match="may not read"):
            change(spec, document, {"op": "add", "path": path, "value": 0})


def test_an_index_with_a_zero_before_it_is_none() -> None:
    for guess in (2, 3):  # and tells nothing of what stands at 1
        with pytest.raises(Conflict, match="has another value"):
            change(LIST, {"l": [1, 2, 3]}, {"op": "test", "path": "/l/01", "value": guess})


@pytest.mark.parametrize("op", ["add", "remove", "replace", "test"])
def test_an_index_longer_than_any_list_is_not_there(op: str) -> None:
    with pytest.raises((Conflict, InvalidArgument)):
        change(FREE, {"l": [1]}, {"op": op, "path": "/l/" + "9" * 5_000, "value": 1})


@pytest.mark.parametrize("guess", [1, 2])
def test_what_may_not_be_read_is_not_guessed_by_a_change_of_the_whole(guess: int) -> None:
    spec = rules(root={"human": ALL}, a_secret={"human": ()})
    with pytest.raises(Rejected, match="'/a/secret'"):
        change(spec, {"a": {"secret": 1}}, {"op": "replace", "path": "/a", "value": {"secret": guess}})


def test_what_may_not_be_read_is_not_shown() -> None:
    spec = rules(root={"human": ("read",)}, a={"human": ()}, a_b={"human": ("read",)}, list_0={"human": ()})
    value = canonical({"a": {"b": 1, "c": 2}, "list": [1, 2], "d": 3})
    assert visible(spec, value, "human") == ({"a": {"b": 1}, "list": [None, 2], "d": 3}, True)
    assert visible(spec, value, "session") == (None, True)
    assert visible(FREE, value, "human") == (json.loads(value), False)


@pytest.mark.parametrize(("value", "tested"), [(True, 1), (1, True), ([1], [True]), ({"x": 0}, {"x": False})])
def test_a_truth_is_no_number(value: Any, tested: Any) -> None:
    with pytest.raises(Conflict):
        change(FREE, {"a": value}, {"op": "test", "path": "/a", "value": tested})
    change(FREE, {"a": 1}, {"op": "test", "path": "/a", "value": 1.0})


def test_a_patch_is_bounded_and_so_is_what_comes_of_it() -> None:
    with pytest.raises(ValueTooLarge):
        patch_of(b'[{"op":"add","path":"/a","value":"' + b"x" * 65_536 + b'"}]')
    with pytest.raises(InvalidArgument, match="257 operations"):
        patch_of(json.dumps([{"op": "remove", "path": "/a"}] * 257).encode())
    doubling = [{"op": "copy", "from": "", "path": f"/c{n}"} for n in range(256)]
    with pytest.raises(ValueTooLarge):
        change(FREE, {"a": "x" * 1_000}, *doubling)


def test_what_one_patch_copies_is_bounded_in_all_also_where_little_comes_of_it() -> None:
    value = {"a": "x" * 1_021, "b": 0}  # of 1,023 bytes
    copies = [{"op": "copy", "from": "/a", "path": "/b"}] * 256
    assert change(FREE, value, *copies)["b"] == value["a"]
    value["a"] = "x" * 1_023
    with pytest.raises(
        ValueTooLarge, match=r"operation 256 copies too much: .* at most 262,144 bytes in all"
    ):
        change(FREE, value, *copies)
    hidden = rules(root={"human": ALL}, a={"session": ALL})
    with pytest.raises(Rejected):  # and not how large it is
        change(hidden, {"a": "x" * 300_000}, {"op": "copy", "from": "/a", "path": "/b"})


GUARDED = rules(root={"human": ALL}, a_x={"human": ALL}, b_x={"human": ALL})


@pytest.mark.parametrize("op", ["copy", "move"])
def test_an_operation_costs_what_it_copies_whatever_else_is_in_the_settings(op: str) -> None:
    value = canonical({"a": {"x": [{}] * 5_000}, "c": 1})
    there, back = ("/c", "/d") if op == "copy" else ("/a", "/b")

    def act(times: int) -> None:
        steps = [{"op": op, "from": there, "path": back}, {"op": op, "from": back, "path": there}]
        patched(GUARDED, value, steps * times, "human")

    assert growth(act, 1, 120) < 20  # 120 and more, if each looks at the whole


@pytest.mark.parametrize("wrong", [b"{}", b"3", b"[3]", b"[", b'[{"op":"add","op":"add"}]'])
def test_what_is_no_patch_is_refused(wrong: bytes) -> None:
    with pytest.raises(PwfError):
        patch_of(wrong)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)


values = st.recursive(st.none() | st.booleans() | st.integers(-3, 3), nested, max_leaves=6)
paths = st.lists(st.sampled_from(["a", "b", "0", "1", "-"]), max_size=3).map(
    lambda parts: "".join("/" + p for p in parts)
)
names = st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "none"])
ops = st.fixed_dictionaries({"op": names, "path": paths}, optional={"from": paths, "value": values})


@given(values, st.lists(ops, max_size=4))
def test_whatever_a_patch_does_what_is_guarded_stays(value: Any, patch: list[dict[str, Any]]) -> None:
    spec = rules(root={"human": ALL}, a={"human": ()})
    document = {"a": value, "b": value}
    try:
        found = change(spec, document, *patch)
    except (Conflict, InvalidArgument, Rejected):
        return
    assert canonical(found["a"]) == canonical(value)
