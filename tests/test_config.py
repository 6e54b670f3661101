"""A configuration file is taken whole or refused with key, file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pwf.config import Config, load_config, parse_config
from pwf.errors import ConfigError


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    config = load_config(tmp_path / "config.toml")
    assert config == Config()
    assert (config.max_runners, config.lease_s, config.lease_renew_s, config.drain_s) == (4, 30, 10, 10)
    assert config.max_value_bytes == 64 * 1024 * 1024
    assert config.max_output_bytes == 4 * 1024 * 1024


def test_every_key_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'max_runners = 2\ndrain_s = 3\nlease_s = 60.5\nlease_renew_s = 20\ninterpreter = "/usr/bin/python3"\n'
        'environment = ["AWS_PROFILE", "_X1"]\nmax_value_bytes = 1048576\nmax_output_bytes = 65536\n'
        "runner_memory_bytes = 268435456\ntemplate_idle_s = 5\nzygote_idle_s = 6\nmax_templates = 3\n"
        "stop_grace_s = 2\n"
    )
    config = load_config(path)
    assert config.max_runners == 2
    assert config.lease_s == 60.5
    assert config.environment == ("AWS_PROFILE", "_X1")
    assert config.runner_memory_bytes == 268435456
    assert config.stop_grace_s == 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("# a\nmax_runners = 0\n", 2, "max_runners is 0: expected `int` >= 1"),
        ("max_runners = 1000\n", 1, "max_runners is 1000"),
        ('\n\nmax_runners = "four"\n', 3, "max_runners is 'four': expected `int`, got `str`"),
        ("max_runers = 4\n", 1, "there is no key 'max_runers'"),
        ("drain_s = 1\n\n[idle]\nx = 1\n", 3, "there is no key 'idle'"),
        ('environment = ["A", "B C"]\n', 1, "environment is"),
        ("drain_s = -1\n", 1, "drain_s is -1"),
        ("a = \n", 1, "not TOML"),
        ("drain_s = 1\ndrain_s = 2\n", 2, "not TOML"),
        ("lease_s = 10\nlease_renew_s = 9\n", 2, "lease_renew_s is 9"),
        ("\nlease_s = 10\n", 2, "lease_renew_s is 10"),
        ('interpreter = "python3"\n', 1, "not an absolute path"),
        ("drain_s = nan\n", 1, "drain_s is nan"),
        ("max_value_bytes = 1.5\n", 1, "max_value_bytes is 1.5"),
        ('"max_runners" = 0\n', 1, "max_runners is 0"),
    ],
)
def test_a_mistake_is_refused_with_key_file_and_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text.encode(), "/x/config.toml")
    assert f"/x/config.toml:{line}:" in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint


def test_a_misspelt_key_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(b"max_runers = 4\n", "c")
    assert caught.value.hint == "did you mean 'max_runners'?"


def test_text_that_is_not_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match="c:2: the file is not UTF-8"):
        parse_config(b"# ok\n# \xff\n", "c")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can not be read"):
        load_config(tmp_path)
