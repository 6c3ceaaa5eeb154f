"""The settings of requests that come in at a node."""

from __future__ import annotations

import pytest

from ringpop_py.address import Address
from ringpop_py.config.settings import Config
from ringpop_py.errors import ConfigError
from ringpop_py.web.entry import rule_of

DOOR = Address("127.0.0.1", 0)
APP = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(http_in_key="query:x"), "--key needs --http-in HOST:PORT"),
        (Config(http_in=DOOR, http_in_key="query:x"), "--http-in needs --app-url URL"),
        (Config(http_in=DOOR, app_url=APP), "--http-in needs --key: header:NAME"),
        (Config(http_in=DOOR, app_url=APP, http_in_key="x"), "key 'x' is none of"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(config: Config, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rule_of(config)
    assert told in str(refused.value)


def test_a_node_at_which_nothing_comes_in_needs_no_key() -> None:
    assert rule_of(Config()) is None
