"""What a peer sends is parsed leniently only while that is quick."""

import pytest

from firearrow._native.protocol.fastjson import (
    BODY_LENIENT_BYTES_MAX,
    BODY_VALUES_MAX,
    JsonError,
    loads,
    loads_body,
)


def bare(size: int) -> bytes:
    """JSON of `size` bytes with an unquoted key."""
    return b'{1:"' + b"x" * (size - 6) + b'"}'


def test_small_bodies_may_be_lenient() -> None:
    assert loads_body(bare(BODY_LENIENT_BYTES_MAX)) == {"1": "x" * (BODY_LENIENT_BYTES_MAX - 6)}


def test_one_byte_more_must_be_strict() -> None:
    with pytest.raises(JsonError, match=f"at most {BODY_LENIENT_BYTES_MAX} can be parsed leniently"):
        loads_body(bare(BODY_LENIENT_BYTES_MAX + 1))
    strict = b'{"1":"' + b"x" * BODY_LENIENT_BYTES_MAX + b'"}'
    assert loads_body(strict) == {"1": "x" * BODY_LENIENT_BYTES_MAX}


def test_files_may_be_lenient_beyond_that() -> None:
    assert len(loads(bare(BODY_LENIENT_BYTES_MAX + 1))["1"]) == BODY_LENIENT_BYTES_MAX - 5


def test_values_are_bounded_before_they_are_created() -> None:
    assert len(loads_body(b"[" + b"0," * BODY_VALUES_MAX + b"0]")) == BODY_VALUES_MAX + 1
    with pytest.raises(JsonError, match=f"more than {BODY_VALUES_MAX} commas"):
        loads_body(b"[" + b"0," * BODY_VALUES_MAX + b"0,0]")
