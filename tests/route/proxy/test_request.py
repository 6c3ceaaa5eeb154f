"""What may be sent to an owner."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.route.proxy.request import HttpRequest, Request


def test_an_endpoint_begins_with_a_slash() -> None:
    with pytest.raises(ConfigError, match="begins with"):
        Request("greet")


@pytest.mark.parametrize(
    "path", ["greet", "//other.host/x", "http://other.host/", "/a b", "/a\r\nX: y", "/\x00", ""]
)
def test_a_path_that_could_name_another_target_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is not a path"):
        HttpRequest("GET", path)


@pytest.mark.parametrize("method", ["", "GET /x", "G\r\n", "A" * 40])
def test_a_method_is_one_word(method: str) -> None:
    with pytest.raises(ConfigError, match="HTTP method"):
        HttpRequest(method, "/")
