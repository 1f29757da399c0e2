"""The time of every parser that is reached from outside grows no faster than its input: known shapes, and some drawn
ones with a fixed seed. The long form is `python -m tests.hostile.fuzz --growth`."""

import pytest

from tests.hostile import growth
from tests.hostile.fuzz import Found, Target
from tests.hostile.growth import Shape
from tests.hostile.targets import FROM_OUTSIDE, TARGETS

SECONDS, REQUESTS_S, SEED = 0.05, 2.0, 8
KNOWN = [
    ("http", Shape(b"GET / HTTP/1.1\r\nX:", b" ", b"\x01")),
    ("http", Shape(b"GET / HTTP/1.1\r\nX:", b"\t", b"\x01")),
    ("http", Shape(b"GET / HTTP/1.1\r\nX: a", b" \t", b"\x7f")),
    ("http", Shape(b"GET ", b"/", b" HTTP/1.1")),
    ("http", Shape(b"GET / HTTP/1.1\r\nAccept-Encoding: gzip", b";q=0.", b"")),
    ("http", Shape(b"GET / HTTP/1.1", b"\r\nX:1", b"")),
    ("filtered property", Shape(b"0x", b"1", b"!")),
    ("filtered property", Shape(b"0x", b"1", b".p3")),
    ("filtered property", Shape(b"", b"1", b"!")),
    ("filtered property", Shape(b"1.", b"0", b"e")),
    ("filtered property", Shape(b"", b" ", b"x")),
    ("filtered property", Shape(b"", b"b", b"0b")),
    ("json body", Shape(b'"', b'\\"', b"")),
    ("json body", Shape(b"{", b'"', b"")),
    ("json body", Shape(b"", b"[", b"")),
    ("json body", Shape(b"{1", b" ", b"")),
    ("json body", Shape(b"", b"{1:", b"")),
    ("heartbeat", Shape(b'{"clientID":"', b'\\"', b"")),
    ("expression", Shape(b"a IN (", b"'a',", b"")),
    ("expression", Shape(b"'", b"''", b"a")),
    ("expression", Shape(b"a = ", b"/*", b"")),
    ("expression", Shape(b"", b"--\n", b"-")),
    ("expression", Shape(b"", b"+ ", b"")),
    ("expression", Shape(b"", b"0", b".e")),
    ("tags", Shape(b"", b"a||", b"")),
    ("properties", Shape(b"", b"a\x01b\x02", b"")),
    ("plain_acl.yml", Shape(b"a: ", b"[", b"]")),
    ("broker.conf", Shape(b"a=", b"\\\n ", b"")),
    ("name", Shape(b"", b"%RETRY%", b"!")),
]
"""What has grown once, and its neighbours."""


@pytest.mark.parametrize(("name", "shape"), KNOWN, ids=lambda each: str(each)[:60])
def test_known_shapes(name: str, shape: Shape) -> None:
    growth.check(TARGETS[name], shape)


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_drawn_shapes(name: str) -> None:
    assert growth.run(TARGETS[name], SECONDS, SEED) > 0


def test_requests_to_a_broker() -> None:
    assert growth.run_requests(REQUESTS_S, SEED) > 0


def quadratic(data: bytes) -> None:
    for end in range(len(data)):  # at 8 KiB longer than FLOOR_S already
        sum(data[:end])


def test_what_grows_is_found() -> None:
    with pytest.raises(Found, match="grows faster"):
        growth.check(Target("quadratic", lambda: [b"x"], quadratic), Shape(b"", b"a", b""))
    growth.check(Target("linear", lambda: [b"x"], sum), Shape(b"", b"a", b""))


def test_an_error_of_another_kind_is_found() -> None:
    with pytest.raises(Found, match="raised KeyError"):
        growth.check(Target("broken", lambda: [b"x"], {}.__getitem__), Shape(b"", b"a", b""))


def test_items_of_lists_are_repeated() -> None:
    same, other = growth.items(b'{"a": [{"topic": "T", "b": [1]}, 2]}')[:2]
    assert same.of(60) == b'{"a": [' + b'{"topic": "T", "b": [1]},' * 2 + b'{"topic": "T", "b": [1]}, 2]}'
    assert b'"T0"' in other.of(60)
    assert b'"T1"' in other.of(60)
