"""`base.texts`: what is left out of texts that others read."""

from __future__ import annotations

import pytest

from ringpop_py.base.texts import HIDDEN, redacted, redacted_value

PEM = "-----BEGIN EC PRIVATE KEY-----\nhunter2\nhunter2\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "cannot open s3://ann:hunter2@bucket/prefix",
        "cannot open etcd://hunter2@host:2379/p",
        "store 's3://b/p?secret_access_key=hunter2&region=x': refused",
        "{'password': 'hunter2', 'name': 'a'}",
        'with {"api-key": "hunter2"}',
        "token: hunter2",
        "ringpop-key-1:hunter2_-x=",
        "Authorization: Bearer hunter2.a-b/c==",
        f"a file with {PEM} in it",
        PEM[:50],
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    assert "hunter2" not in redacted(text)
    assert HIDDEN in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "n2 unknown -> alive: by ping from n1",
        "read the keys again keys=['1a2b3c4d']",
        "no connection to http://10.0.0.1:80/a@b: refused",
        "key='ada' partition=3",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_secret_is_left_out_of_a_value_also_by_the_name_of_its_field() -> None:
    value = {
        "keys": ["a"],
        "db_password": "hunter2",
        "tokens": 5,
        "of": [{"u": "s3://a:b@c"}, None],
    }

    assert redacted_value(value) == {
        "keys": ["a"],
        "db_password": HIDDEN,
        "tokens": 5,
        "of": [{"u": f"s3://{HIDDEN}@c"}, None],
    }
