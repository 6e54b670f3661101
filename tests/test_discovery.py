"""Which project, file, interpreter and environment a command means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pwf.discovery import (
    BUILTIN_WORKFLOWS,
    choose_interpreter,
    client_environment,
    find_manager_file,
    find_workflow_file,
    list_manager_files,
    list_workflow_files,
    project_of,
    project_root,
)
from pwf.errors import EnvironmentMissing, InvalidArgument, LoadFailed, NotFound

HOSTILE = Path(__file__).parent / "data" / "strings" / "blns.json"
FLOW = "from pwf import Workflow\nflow = Workflow('x')\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- the project -----------------------------------------------------------------------------------------


def test_the_root_is_the_nearest_folder_upward_that_holds_pwf(here: Path) -> None:
    (here / "a/.pwf").mkdir(parents=True)
    (here / "a/b/.git").mkdir(parents=True)
    (here / "a/b/c").mkdir(parents=True)

    assert project_root(here / "a/b/c") == here / "a"


def test_without_pwf_the_root_is_the_repositorys(here: Path) -> None:
    (here / "a/deep/er").mkdir(parents=True)
    put(here / "a/.git", "gitdir: elsewhere")  # a worktree's is a file

    assert project_root(here / "a/deep/er") == here / "a"


def test_without_either_the_root_is_the_working_folder_as_its_real_path(here: Path) -> None:
    (here / "real").mkdir()
    (here / "link").symlink_to("real")

    assert project_root(here / "link") == here / "real"


def test_a_file_named_pwf_is_no_mark_of_a_project(here: Path) -> None:
    put(here / ".pwf")
    (here / "a").mkdir()

    assert project_root(here / "a") == here / "a"


# --- workflow files --------------------------------------------------------------------------------------


def test_a_name_is_looked_for_in_the_project_and_then_in_the_users_folder(here: Path) -> None:
    config = here / "config"
    put(here / "p/.pwf/workflows/both.py", FLOW)
    put(config / "workflows/both.py", FLOW)
    put(config / "workflows/mine.py", FLOW)
    (here / "p/sub").mkdir()

    both = find_workflow_file("both", here / "p/sub", config)
    mine = find_workflow_file("mine", here / "p/sub", config)

    assert (both.path, both.scope, both.root) == (here / "p/.pwf/workflows/both.py", "project", here / "p")
    assert (mine.path, mine.scope, mine.root) == (config / "workflows/mine.py", "user", here / "p")


@pytest.mark.parametrize("how", ["flows/x.py", "./flows/x.py", "{here}/flows/x.py", "../{name}/flows/x.py"])
def test_a_path_works_too(here: Path, how: str) -> None:
    put(here / "flows/x.py", FLOW)

    found = find_workflow_file(how.format(here=here, name=here.name), here, here / "config")

    assert (found.name, found.path, found.scope) == ("x", here / "flows/x.py", "path")


def test_a_file_given_by_path_runs_in_the_project_that_owns_it_wherever_it_was_typed(here: Path) -> None:
    put(here / "a/.pwf/workflows/tag.py", FLOW)
    put(here / "a/tools/tag.py", FLOW)
    put(here / "plain/tag.py", FLOW)
    (here / "b/.pwf").mkdir(parents=True)

    def root(path: str) -> Path:
        return find_workflow_file(path, here / "b", here / "config").root

    assert root(f"{here}/a/.pwf/workflows/tag.py") == root("../a/tools/tag.py") == here / "a"
    assert root("../plain/tag.py") == here / "plain", "in no project, its own folder"


def test_a_file_belongs_where_it_is_named_not_where_a_link_leads(here: Path) -> None:
    put(here / "shared/tag.py", FLOW)
    (here / "a/.pwf/workflows").mkdir(parents=True)
    (here / "a/.pwf/workflows/tag.py").symlink_to(here / "shared/tag.py")

    assert find_workflow_file("a/.pwf/workflows/tag.py", here, here / "config").root == here / "a"


@pytest.mark.parametrize("how", ["{config}/workflows/mine.py", "{linked}/mine.py", "mine"])
def test_workflows_of_the_user_belong_to_the_project_that_they_are_started_from(here: Path, how: str) -> None:
    config = here / "config"
    put(config / "workflows/mine.py", FLOW)
    (config / ".git").mkdir()
    (here / "linked").symlink_to(config / "workflows")
    (here / "b/.git").mkdir(parents=True)
    text = how.format(config=config, linked=here / "linked")

    assert find_workflow_file(text, here / "b", config).root == here / "b"
    assert project_of(text, here / "b", config) == here / "b"


def test_built_in_workflows_belong_to_the_project_that_they_are_started_from(here: Path) -> None:
    assert project_of(str(BUILTIN_WORKFLOWS / "any.py"), here, here / "config") == here


def test_the_project_of_a_file_that_is_gone_is_still_known(here: Path) -> None:
    (here / "a/.pwf").mkdir(parents=True)

    assert project_of("a/gone.py", here, here / "config") == here / "a"


def test_a_name_with_a_dash_or_any_letters_is_a_name(here: Path) -> None:
    put(here / ".pwf/workflows/tägliche-prüfung.py", FLOW)

    assert find_workflow_file("tägliche-prüfung", here, here / "config").scope == "project"


def test_an_unknown_name_says_the_nearest_names_and_where_it_looked(here: Path) -> None:
    put(here / ".pwf/workflows/release.py", FLOW)

    with pytest.raises(NotFound) as caught:
        find_workflow_file("relaese", here, here / "config")

    assert caught.value.message == "there is no workflow named 'relaese'"
    assert "did you mean 'release'?" in (caught.value.hint or "")
    assert str(here / ".pwf/workflows") in (caught.value.hint or "")


def test_in_an_empty_project_the_hint_says_where_to_put_a_file(here: Path) -> None:
    with pytest.raises(NotFound) as caught:
        find_workflow_file("release", here, here / "config")

    assert str(here / ".pwf/workflows") in (caught.value.hint or "")


@pytest.mark.parametrize(("text", "what"), [("no/such.py", "does not exist"), ("folder/", "is a folder")])
def test_a_path_that_is_no_file_is_not_found(here: Path, text: str, what: str) -> None:
    (here / "folder").mkdir()

    with pytest.raises(NotFound, match=what):
        find_workflow_file(text, here, here / "config")


def test_hostile_names_are_not_found_and_never_leave_the_folders(here: Path) -> None:
    put(here / "secret.py", FLOW)
    put(here / "p/.pwf/workflows/a.py", FLOW)
    names = [
        *json.loads(HOSTILE.read_text()),
        "../../../secret",
        "..",
        ".",
        "\0",
        "a\0",
        "x" * 5_000,
        "\ud800",
    ]

    for name in names:
        with pytest.raises(NotFound):
            find_workflow_file(name, here / "p", here / "config")


def test_listing_leaves_out_helpers_and_what_is_hidden_by_an_earlier_place(here: Path) -> None:
    config = here / "config"
    put(here / ".pwf/workflows/b.py", FLOW)
    put(here / ".pwf/workflows/a.py", "import pwf\nflow = pwf.Workflow ('a')\n")
    put(here / ".pwf/workflows/helper.py", "X = 1\n")
    put(here / ".pwf/workflows/__init__.py", FLOW)
    put(here / ".pwf/workflows/.#a.py", FLOW)
    put(here / ".pwf/workflows/notes.txt", FLOW)
    put(here / ".pwf/workflows/sub/c.py", FLOW)
    (here / ".pwf/workflows/gone.py").symlink_to("nowhere.py")
    put(config / "workflows/a.py", FLOW)
    put(config / "workflows/z.py", FLOW)

    found = [(one.name, one.scope) for one in list_workflow_files(here, config)]

    assert found == sorted(found)
    own = [one for one in found if one[1] != "builtin"]
    assert own == [("a", "project"), ("b", "project"), ("z", "user")]
    assert ("approve", "builtin") in found


def test_without_any_folder_only_what_is_built_in_is_listed(here: Path) -> None:
    assert {one.scope for one in list_workflow_files(here, here / "config")} == {"builtin"}
    assert list_manager_files(here, here / "config") == []


def test_the_project_and_then_the_user_hide_what_is_built_in(here: Path) -> None:
    config = here / "config"

    def found() -> tuple[str, Path]:
        (listed,) = (one for one in list_workflow_files(here, config) if one.name == "approve")
        named = find_workflow_file("approve", here, config)
        assert named == listed
        assert named.root == here, "a built-in one works for the project that it is started from"
        return named.scope, named.path

    assert found() == ("builtin", BUILTIN_WORKFLOWS / "approve.py")
    put(config / "workflows/approve.py", FLOW)
    assert found() == ("user", config / "workflows/approve.py")
    put(here / ".pwf/workflows/approve.py", FLOW)
    assert found() == ("project", here / ".pwf/workflows/approve.py")


# --- the interpreter -------------------------------------------------------------------------------------


def executable(path: Path) -> Path:
    put(path, "#!/bin/sh\n").chmod(0o755)
    return path


@pytest.mark.parametrize(
    "mark",
    [
        "lib/python3.12/site-packages/pwf_workflows-1.2.dist-info/METADATA",
        "lib64/python3.13/site-packages/pwf/__init__.py",
        "lib/python3.11/site-packages/pwf-workflows.egg-link",
    ],
)
def test_the_projects_venv_is_used_when_pwf_is_installed_in_it(here: Path, mark: str) -> None:
    own = executable(here / ".venv/bin/python")
    put(here / ".venv" / mark)

    assert choose_interpreter(here, None, sys.executable) == str(own)


def test_a_venv_without_pwf_is_not_used(here: Path) -> None:
    executable(here / ".venv/bin/python")
    put(here / ".venv/lib/python3.12/site-packages/other/__init__.py")

    assert choose_interpreter(here, None, sys.executable) == sys.executable


def test_the_configured_interpreter_stands_before_all(here: Path) -> None:
    executable(here / ".venv/bin/python")
    put(here / ".venv/lib/python3.12/site-packages/pwf/__init__.py")
    other = executable(here / "tools/python")

    assert choose_interpreter(here, str(other), sys.executable) == str(other)
    assert choose_interpreter(here, "tools/python", sys.executable) == str(other)


def test_links_are_kept_for_a_virtual_environments_python_is_one(here: Path) -> None:
    link = here / "venv/bin/python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)

    assert choose_interpreter(here, None, str(link)) == str(link)


@pytest.mark.parametrize("configured", ["/no/such/python", "plain.txt"])
def test_an_interpreter_that_can_not_run_is_environment_missing_with_what_to_do(
    here: Path, configured: str
) -> None:
    put(here / "plain.txt").chmod(0o644)

    with pytest.raises(EnvironmentMissing) as caught:
        choose_interpreter(here, configured, sys.executable)

    assert configured in caught.value.message
    assert caught.value.hint


def test_a_venv_whose_python_is_gone_falls_back_to_the_client(here: Path) -> None:
    (here / ".venv/bin").mkdir(parents=True)
    (here / ".venv/bin/python").symlink_to("/no/such/python")
    put(here / ".venv/lib/python3.12/site-packages/pwf/__init__.py")

    assert choose_interpreter(here, None, sys.executable) == sys.executable


# --- the environment -------------------------------------------------------------------------------------


def test_only_allowed_variables_are_taken() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/a",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PWF_HOME": "/state",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PYTHONPATH": "/elsewhere",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "https_proxy": "http://user:word@proxy",
    }

    assert set(client_environment(environ, ())) == {"PATH", "HOME", "LC_ALL", "TZ", "PWF_HOME"}


def test_the_config_may_name_more_also_with_a_star() -> None:
    environ = {"AWS_REGION": "eu", "AWS_PROFILE": "p", "TOKEN": "t", "OTHER": "o"}

    assert client_environment(environ, ["AWS_*", "TOKEN"]) == {
        "AWS_PROFILE": "p",
        "AWS_REGION": "eu",
        "TOKEN": "t",
    }


def test_the_marker_of_a_run_is_never_passed_on() -> None:
    environ = {"PWF_RUN_MARKER": "home:run:1", "PATH": "/bin"}

    assert client_environment(environ, ["PWF_*", "PWF_RUN_MARKER", "*"]) == {"PATH": "/bin"}


def test_a_value_that_is_not_utf8_is_one_clear_error_when_it_would_be_taken() -> None:
    with pytest.raises(InvalidArgument, match="'LANG' is not UTF-8"):
        client_environment({"LANG": "\udcff"}, ())

    assert client_environment({"OTHER": "\udcff"}, ()) == {}


def test_discovery_imports_neither_trio_nor_the_workflow_and_runner_packages() -> None:
    program = (
        "import sys, pwf.discovery; print([name for name in sys.modules if name.partition('.')[0] in "
        "('trio', 'anyio', 'apsw', 'asyncio') or name.startswith(('pwf.workflow', 'pwf.runner', 'pwf.actors'))])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"


def test_a_workflows_folder_that_can_not_be_read_is_named_and_not_taken_for_an_empty_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = here / ".pwf" / "workflows"
    put(folder / "a.py", FLOW)
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if path == folder:
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(LoadFailed, match="can not be read: Permission denied") as caught:
        list_workflow_files(here, here / "config")
    assert caught.value.hint == f"chmod u+rx {folder}"


# --- resource managers -----------------------------------------------------------------------------------


MANAGER = "from pwf import ResourceManager\nmanager = ResourceManager('x')\n"


def test_a_manager_is_found_in_the_project_then_in_the_users_folder(here: Path) -> None:
    config = here / "config"
    put(here / "p/.pwf/resources/disk.py", MANAGER)
    put(config / "resources/disk.py", MANAGER)
    put(config / "resources/net.py", MANAGER)
    put(config / "resources/helper.py", "x = 1")

    found = find_manager_file("disk", here / "p", config)

    assert (found.path, found.scope, found.root) == (here / "p/.pwf/resources/disk.py", "project", here / "p")
    assert find_manager_file("net", here / "p", config).scope == "user"
    listed = list_manager_files(here / "p", config)
    assert [(one.name, one.scope) for one in listed] == [("disk", "project"), ("net", "user")]


def test_workflows_and_managers_do_not_see_each_other(here: Path) -> None:
    put(here / ".pwf/resources/disk.py", MANAGER)
    put(here / ".pwf/workflows/flow.py", FLOW)

    with pytest.raises(NotFound, match="no resource manager named 'flow'"):
        find_manager_file("flow", here, here / "config")
    with pytest.raises(NotFound, match="no workflow named 'disk'"):
        find_workflow_file("disk", here, here / "config")


def test_an_unknown_manager_names_the_nearest_and_where_it_looked(here: Path) -> None:
    put(here / ".pwf/resources/mirror.py", MANAGER)

    with pytest.raises(NotFound) as caught:
        find_manager_file("miror", here, here / "config")

    assert "did you mean 'mirror'?" in (caught.value.hint or "")
    assert str(here / ".pwf/resources") in (caught.value.hint or "")


def test_a_managers_file_elsewhere_is_refused_with_where_it_belongs(here: Path) -> None:
    put(here / ".pwf/resources/disk.py", MANAGER)
    elsewhere = put(here / "tools/disk.py", MANAGER)

    assert find_manager_file("./.pwf/resources/disk.py", here, here / "config").name == "disk"
    with pytest.raises(InvalidArgument, match="lies in no folder of resource managers") as caught:
        find_manager_file(str(elsewhere), here, here / "config")
    assert str(here / ".pwf/resources") in (caught.value.hint or "")
