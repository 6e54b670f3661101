"""Agents are those of the configuration as it stands now, for the start that names one."""

import os

import pytest

from pwf.actors.code.agents import Agents
from pwf.config import Config, load_config
from pwf.errors import ConfigError, NotFound, Rejected
from tests.store.world import graph, linear, node

pytestmark = pytest.mark.trio

ASKS = graph(node("review", "agent"))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.toml"


def write(file, words):
    """Write it, with a time of its own: two writes may fall into one tick of the file system's clock."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(words)
    os.utime(file, ns=(before + 10**9, before + 10**9))


async def test_an_agent_that_is_written_down_while_the_daemon_serves_is_known_at_the_next_start(file):
    agents = Agents(Config(), file)
    launches = agents.commands  # what every launch looks into
    with pytest.raises(NotFound, match="there is no agent 'coder'") as caught:
        await agents.of(ASKS, "coder")
    assert caught.value.hint == f"add [agents.coder] to {file}"
    write(file, "default_agent = 'coder'\n[agents.coder]\ncommand = ['a']\naccount = 'team'\n")
    assert await agents.of(ASKS, "coder") == "coder"
    assert await agents.of(ASKS, None) == "coder"
    assert agents.config.accounts == {"coder": "team"}
    write(file, "[agents.other]\ncommand = ['c']\n")
    assert await agents.of(ASKS, "other") == "other"
    assert {name: agent.command for name, agent in launches.items()} == {"other": ("c",)}
    with pytest.raises(Rejected, match="nobody was named"):
        await agents.of(ASKS, None)


async def test_a_mistake_in_the_file_refuses_a_start_that_needs_an_agent_and_changes_nothing(file):
    write(file, "[agents.coder]\ncommand = ['a']\n")
    agents = Agents(load_config(file), file)
    write(file, "[agents.coder]\nkommand = ['a']\n")
    with pytest.raises(ConfigError, match="kommand"):
        await agents.of(ASKS, "coder")
    assert agents.commands["coder"].command == ("a",)
    assert await agents.of(graph(node("a")), None) is None
    assert await agents.of(linear(1), "person") is None
    assert await agents.of(ASKS, None, session_id="s") is None
