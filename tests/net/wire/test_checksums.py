"""Each checksum is the one the format names, and runs on over what follows."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import WireError
from ringpop_py.base.farmhash import fingerprint32
from ringpop_py.net.wire.checksums import CRC32, CRC32C, FARMHASH, checksum_of_type, crc32c_portable

CHECK_BYTES = b"123456789"


def test_crc32_is_that_of_zlib() -> None:
    assert checksum_of_type(CRC32)(CHECK_BYTES, 0) == zlib.crc32(CHECK_BYTES) == 0xCBF43926


def test_crc32c_has_its_published_check_value() -> None:
    assert checksum_of_type(CRC32C)(CHECK_BYTES, 0) == crc32c_portable(CHECK_BYTES) == 0xE3069283


def test_farmhash_of_one_argument_is_its_fingerprint() -> None:
    assert checksum_of_type(FARMHASH)(CHECK_BYTES, 0) == fingerprint32(CHECK_BYTES)


def test_farmhash_goes_on_from_the_value_before() -> None:
    farmhash = checksum_of_type(FARMHASH)

    assert farmhash(CHECK_BYTES, 1) != farmhash(CHECK_BYTES, 2)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_the_portable_crc32c_runs_on_as_the_compiled_one(first: bytes, second: bytes) -> None:
    compiled = checksum_of_type(CRC32C)

    assert crc32c_portable(second, crc32c_portable(first)) == compiled(second, compiled(first, 0))
    assert crc32c_portable(second, crc32c_portable(first)) == crc32c_portable(first + second)


@pytest.mark.parametrize("kind", [4, 255])
def test_other_types_break_the_protocol(kind: int) -> None:
    with pytest.raises(WireError, match="no checksum type"):
        checksum_of_type(kind)
