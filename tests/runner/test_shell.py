"""Shell nodes, with real commands in a real runner process."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf import host
from pwf.protocol.runner import encode_line
from pwf.runner.kinds.command import Terminations
from pwf.runner.kinds.start import start_process
from pwf.workflow.effects import NotApplied, idempotent, manual
from pwf.workflow.shell import ShellResult
from pwf.workflow.timing import seconds
from pwf.workflow.workflow import Workflow
from tests.runner.peer import MemoryRun, fork_runner, memory_run, pairs, run_forked

SAFE = idempotent("test")


def shell(command: Any, launch: dict[str, Any] | None = None, **options: Any) -> MemoryRun:
    """Run a workflow of one shell node."""
    flow: Workflow[Any] = Workflow("w")
    fn = command if callable(command) else (lambda ctx: command)
    flow.shell(id="step", **({"effect": SAFE} | options))(fn)
    return run_forked(flow, memory_run(flow, **(launch or {})))


def result(run: MemoryRun) -> ShellResult:
    assert run.last.outcome == "completed", run.last.error
    return msgspec.convert(run.output, ShellResult)


def message(run: MemoryRun) -> str:
    assert run.last.error is not None
    return run.last.error.message


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- what goes in -----------------------------------------------------------------------------------------


def test_a_command_runs_and_its_streams_are_captured() -> None:
    found = result(shell(["sh", "-c", "echo out; echo err >&2"]))
    assert (found.exit_code, found.stdout, found.stderr, found.leftovers) == (0, "out\n", "err\n", 0)


def test_a_string_goes_through_the_named_shell() -> None:
    assert result(shell("echo $((6 * 7)) | cat", shell="/bin/sh")).stdout == "42\n"


def test_folder_variables_and_stdin_are_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run = shell(
        ["sh", "-c", 'pwd; echo "$COLOUR"; cat'],
        {"root": str(tmp_path)},
        cwd="sub",
        env={"COLOUR": "blau"},
        stdin="from stdin",
    )
    assert result(run).stdout == f"{tmp_path / 'sub'}\nblau\nfrom stdin"


def test_without_stdin_a_command_reads_nothing() -> None:
    assert result(shell(["cat"])).stdout == ""


def test_a_large_stdin_and_a_large_stdout_do_not_deadlock() -> None:
    data = b"0123456789abcdef" * 125_000
    found = result(shell(["cat"], stdin=data))
    assert found.stdout_bytes == data


def test_a_command_that_does_not_read_its_stdin_is_no_failure() -> None:
    assert result(shell(["true"], stdin=b"x" * 2_000_000)).exit_code == 0


def test_the_command_has_its_own_group_in_the_runners_session() -> None:
    script = "import os; print(os.getpid() == os.getpgid(0), os.getsid(0) == os.getppid())"
    assert result(shell(python(script))).stdout == "True True\n"


def test_a_plain_command_needs_no_module_that_works_at_each_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: Any, **__: Any) -> None:
        raise AssertionError("it was started by subprocess")

    monkeypatch.setattr("subprocess.Popen", popen)
    monkeypatch.setattr(
        "pwf.runner.kinds.start._is_inherited", lambda descriptor: False
    )  # what pytest has open
    run = shell(["sh", "-c", "cat; echo err >&2; exit 3"], stdin="in", ok_exit_codes=(3,))
    found = result(run)
    assert (found.exit_code, found.stdout, found.stderr) == (3, "in", "err\n")


def test_a_command_inherits_no_descriptor_that_a_step_has_made_inheritable(tmp_path: Path) -> None:
    def command(ctx: Any) -> list[str]:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        return ["sh", "-c", "ls -l /proc/self/fd"]

    assert str(tmp_path) not in result(shell(command)).stdout


def test_a_command_is_looked_for_on_the_path_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "folder" / "tool").mkdir(parents=True)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "tool").write_text("#!/bin/sh\necho wrong\n")
    (tmp_path / "right").mkdir()
    (tmp_path / "right" / "tool").write_text("#!/bin/sh\necho $0\n")
    (tmp_path / "right" / "tool").chmod(0o755)
    path = os.pathsep.join(str(tmp_path / name) for name in ("missing", "folder", "plain", "right"))
    assert result(shell(["tool"], env={"PATH": path})).stdout == f"{tmp_path / 'right' / 'tool'}\n"


@pytest.mark.parametrize("first", ["here", "stale"])
def test_the_path_means_to_a_plain_command_what_it_means_to_any_other(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty part is the command's folder; a script whose interpreter is gone is passed over."""
    scripts = {
        "here": "#!/bin/sh\necho here\n",
        "stale": "#!/no/such/shell\n",
        "last": "#!/bin/sh\necho last\n",
    }
    for name, script in scripts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(script)
        (tmp_path / name / "tool").chmod(0o755)
    monkeypatch.setattr("pwf.runner.kinds.start._is_inherited", lambda descriptor: False)
    monkeypatch.chdir(tmp_path / "here")
    path = {"here": f":{tmp_path / 'last'}", "stale": f"{tmp_path / 'stale'}:{tmp_path / 'last'}"}[first]
    run = shell(["tool"], {"root": str(tmp_path / "here")}, env={"PATH": path})
    assert result(run).stdout == {"here": "here\n", "stale": "last\n"}[first]


# --- what comes out ---------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_are_kept_exactly() -> None:
    """O2: binary bytes, and half a character at the end of one write."""
    script = "import os, time; os.write(1, b'\\xc6\\x00\\xff\\xfe\\xe2\\x82'); time.sleep(0.05); os.write(1, b'\\xac')"
    found = result(shell(python(script)))
    assert found.stdout_bytes == b"\xc6\x00\xff\xfe\xe2\x82\xac"
    assert "\ufffd" in found.stdout


def test_one_line_of_5_mb_is_read_and_what_is_over_the_cap_is_counted() -> None:
    """O3."""
    found = result(shell(python("print('x' * 5_000_000, end='')")))
    assert len(found.stdout_bytes) == 4 * 1024 * 1024
    assert found.stdout_dropped == 5_000_000 - 4 * 1024 * 1024


def test_10_mb_to_stderr_only_do_not_hang() -> None:
    """O3."""
    found = result(shell(python("import sys; sys.stderr.write('y' * 10_000_000)"), max_output=1_000))
    assert (found.stdout, len(found.stderr_bytes), found.stderr_dropped) == ("", 1_000, 9_999_000)


def test_the_runs_own_limit_of_output_bounds_the_nodes() -> None:
    found = result(shell(["echo", "0123456789"], {"output_bytes_max": 4}))
    assert (found.stdout, found.stdout_dropped) == ("0123", 7)


def test_output_is_parsed_and_a_bad_parse_fails_the_step() -> None:
    assert result(shell(["echo", '{"a": [1]}'], parse="json")).parsed == {"a": [1]}
    run = shell(["echo", "{"], parse="json")
    assert run.last.outcome == "failed"
    assert "not JSON" in message(run)


def test_each_line_can_become_an_update() -> None:
    def on_line(ctx: Any, line: str, stream: str) -> dict[str, Any] | None:
        return {"type": "note", "key": line, "stream": stream} if line.startswith("p") else None

    run = shell(["sh", "-c", "echo p1; echo q; printf 'p2\\r\\n' >&2; printf p3"], on_line=on_line)
    assert sorted(run.updates) == [
        ("note", "p1", {"stream": "stdout"}),
        ("note", "p2", {"stream": "stderr"}),
        ("note", "p3", {"stream": "stdout"}),
    ]


def test_a_line_is_bounded_for_on_line_and_bad_bytes_are_replaced() -> None:
    def on_line(ctx: Any, line: str, stream: str) -> dict[str, Any]:
        return {"type": "note", "key": "k", "length": len(line), "start": line[:2]}

    run = shell(python("import os; os.write(1, b'\\xff' + b'x' * 3_000_000)"), on_line=on_line)
    assert run.updates == [("note", "k", {"length": 16 * 1024 + 1, "start": "\ufffdx"})]


def test_an_option_that_calls_exit_fails_the_step_and_not_the_runner() -> None:
    run = shell(["true"], env=lambda ctx: sys.exit(3))
    assert (run.last.outcome, run.last.error and run.last.error.type) == ("failed", "SystemExit")


@pytest.mark.parametrize("fault", [ValueError, SystemExit])
def test_a_fault_in_on_line_is_published_and_decides_nothing(fault: type[BaseException]) -> None:
    def on_line(ctx: Any, line: str, stream: str) -> None:
        raise fault("oops")

    run = shell(["sh", "-c", "echo a; echo b"], on_line=on_line)
    assert result(run).stdout == "a\nb\n"
    [(kind, key, data)] = run.updates
    assert (kind, key) == ("warning", "step")
    assert "oops" in data["message"]


# --- how it ends ------------------------------------------------------------------------------------------


def test_an_exit_code_outside_the_good_ones_fails_with_the_end_of_both_streams() -> None:
    run = shell(["sh", "-c", "echo checked 3 files; echo it is broken >&2; exit 3"])
    assert run.last.outcome == "failed"
    assert run.last.error is not None
    assert run.last.error.code == "command_failed"
    for words in ("exited with code 3", "it is broken", "checked 3 files"):
        assert words in message(run)


def test_ok_exit_codes_complete_the_step() -> None:
    assert result(shell(["sh", "-c", "exit 1"], ok_exit_codes=(0, 1))).exit_code == 1


def test_a_death_by_signal_is_named() -> None:
    assert "SIGSEGV (signal 11)" in message(shell(["sh", "-c", "kill -SEGV $$"]))


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        (["no-such-command-here"], {}, "there is no command 'no-such-command-here'"),
        (["true"], {"cwd": "missing"}, "working folder"),
        (["/etc/passwd"], {}, "may not be executed"),
        (["true", "x" * 3_000_000], {}, "could not be started"),
    ],
)
def test_a_command_that_can_not_start_is_explained(command: Any, options: Any, words: str) -> None:
    run = shell(command, **options)
    assert run.last.error is not None
    assert run.last.error.code == "command_not_started"
    assert words in message(run)


def test_a_manual_command_is_settled_by_its_end() -> None:
    def refuse(ctx: Any) -> Any:
        raise NotApplied("nothing to send")

    def broken(ctx: Any) -> Any:
        raise KeyError("x")

    effect = manual("mail")
    ends = [
        (["true"], "applied"),
        (["false"], "unknown"),
        (["no-such-command-here"], "rejected"),
        (refuse, "rejected"),
        (broken, "unknown"),
    ]
    for command, settled in ends:
        assert shell(command, effect=effect).last.settled == settled


def test_a_command_that_can_be_watched_no_longer_is_killed_and_nobody_knows_what_it_has_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has run, so it is never rejected: an effect that must not be repeated would be."""
    found = host.descendants
    failures = [OSError(errno.EMFILE, "no descriptor is left")]

    def descendants(pid: int) -> Any:
        if failures:
            raise failures.pop()
        return found(pid)

    monkeypatch.setattr("pwf.host.descendants", descendants)
    command = ["sh", "-c", f"echo $$ > {tmp_path / 'pid'}; exec sleep 600"]
    run = shell(command, effect=manual("mail"), timeout=seconds(0.5))
    assert (run.last.outcome, run.last.settled) == ("failed", "unknown")
    assert "no descriptor is left" in message(run)
    assert is_dead(int((tmp_path / "pid").read_text()))


def test_an_alarm_that_goes_off_as_a_command_begins_does_not_reject_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*more: Any) -> int:
        start_process(*more)
        raise TimeoutError("the author's alarm")

    monkeypatch.setattr("pwf.runner.kinds.command.start_process", start)
    run = shell(["sleep", "600"], effect=manual("mail"))
    assert (run.last.outcome, run.last.settled) == ("failed", "unknown")
    assert len(run.last.survivors) == 1, "it was found, and ended"


def test_an_exit_code_that_nobody_knows_is_no_success() -> None:
    def command(ctx: Any) -> list[str]:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps then, and tells nobody
        return ["sh", "-c", "exit 3"]

    run = shell(command, effect=manual("mail"), ok_exit_codes=(0, 3))
    assert (run.last.outcome, run.last.settled) == ("failed", "unknown")
    assert "nobody knows how" in message(run)


def test_a_timeout_ends_the_command_politely_when_it_listens() -> None:
    script = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done"
    started = time.monotonic()
    run = shell(["sh", "-c", script], {"stop_grace_ms": 10_000}, timeout=seconds(0.2))
    assert run.last.outcome == "timed_out"
    assert time.monotonic() - started < 5
    assert "0.2 s" in message(run)


def test_a_timeout_kills_what_ignores_sigterm_and_what_left_the_group(tmp_path: Path) -> None:
    """R7, O1: nothing of the step lives when the outcome is sent."""
    script = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        break
with open({str(tmp_path / "pids")!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""
    alive_at_finish: list[int] = []

    def decide(message: Any) -> None:
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        alive_at_finish.extend(pid for pid in pids if not is_dead(pid))
        assert len(pids) >= 2

    launch = {"stop_grace_ms": 100, "decide": decide}
    run = shell(python(script), launch, timeout=seconds(0.6))
    assert run.last.outcome == "timed_out"
    assert alive_at_finish == []
    assert run.leaving is not None
    assert run.leaving.childless


def test_a_background_child_that_keeps_the_pipe_open_does_not_hang_the_step() -> None:
    started = time.monotonic()
    found = result(shell(["sh", "-c", "sleep 600 & echo $!"]))
    assert time.monotonic() - started < 5
    assert found.leftovers == 1
    assert is_dead(int(found.stdout))


def test_a_background_child_without_the_pipe_does_not_outlive_the_step() -> None:
    found = result(shell(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & sleep 0.05; echo done"]))
    assert (found.stdout, found.leftovers) == ("done\n", 1)


def test_a_background_child_that_ends_soon_is_waited_for() -> None:
    found = result(shell(["sh", "-c", "(sleep 0.05; echo late) & echo early"]))
    assert (found.stdout, found.leftovers) == ("early\nlate\n", 0)


def test_a_command_that_has_closed_its_streams_is_over_when_its_process_ends() -> None:
    run = shell(["sh", "-c", "exec >&- 2>&-; sleep 0.4; exit 3"])
    assert "exited with code 3" in message(run)


def test_where_no_descriptor_tells_of_its_end_a_command_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwf.host.open_child_exit", lambda pid: None)
    assert result(shell(["sh", "-c", "exec 2>&-; echo out; exec >&-; sleep 0.02"])).stdout == "out\n"
    assert shell(["sleep", "600"], {"stop_grace_ms": 100}, timeout=seconds(0.1)).last.outcome == "timed_out"


def test_a_command_that_was_said_to_have_ended_too_soon_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_child_exit(pid: int) -> int:
        reading, writing = os.pipe()
        os.close(writing)  # so it is readable at once
        return reading

    monkeypatch.setattr("pwf.host.open_child_exit", open_child_exit)
    started = time.monotonic()
    run = shell(["sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 3"], timeout=seconds(30))
    assert "exited with code 3" in message(run)
    assert time.monotonic() - started < 20


def test_a_sigterm_that_comes_when_the_command_has_just_ended_ends_the_runner() -> None:
    pid = os.fork()
    if pid == 0:
        with Terminations():
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_a_marker_variable_reaches_the_command() -> None:
    os.environ["PWF_RUN_MARKER"] = "home:run1:1"
    try:
        assert result(shell(["printenv", "PWF_RUN_MARKER"])).stdout == "home:run1:1\n"
    finally:
        del os.environ["PWF_RUN_MARKER"]


# --- the runner's own end ---------------------------------------------------------------------------------


def start_sleeper(tmp_path: Path) -> tuple[Workflow[Any], str]:
    flow: Workflow[Any] = Workflow("w")
    path = str(tmp_path / "pid")
    script = f"setsid sleep 600 & echo $! > {path}.part; mv {path}.part {path}; wait"
    flow.shell(effect=SAFE, id="step")(lambda ctx: ["sh", "-c", script])
    return flow, path


def wait_until(condition: Any, seconds_max: float = 10) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["hang-up", "SIGTERM"])
def test_the_steps_processes_end_with_the_runner(how: str, tmp_path: Path) -> None:
    """O1: when the daemon is gone, and when it asks the runner to end."""
    flow, path = start_sleeper(tmp_path)
    with pairs() as (messages, requests, theirs, their_values):
        pid = fork_runner(flow, theirs, their_values, messages, requests)
        theirs.close()
        their_values.close()
        messages.sendall(encode_line([memory_run(flow, stop_grace_ms=200).launch()]))
        wait_until(lambda: os.path.exists(path))
        if how == "hang-up":
            messages.close()
        else:
            os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if how == "hang-up" else -signal.SIGTERM)
    wait_until(lambda: is_dead(int(Path(path).read_text())))


def test_a_plain_function_that_never_returns_ends_with_the_daemon() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def spin(ctx: Any) -> None:
        while True:
            pass

    with pairs() as (messages, requests, theirs, their_values):
        pid = fork_runner(flow, theirs, their_values, messages, requests)
        theirs.close()
        messages.sendall(encode_line([memory_run(flow).launch()]))
        time.sleep(0.05)
        messages.close()
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
