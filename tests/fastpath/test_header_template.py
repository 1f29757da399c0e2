"""A connection with a header template takes, leaves and refuses the same frames as one that sees its first header."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.wire.codes import RequestCode
from tests.support.fast_path_harness import FastPathConnection, FastPathHarness
from tests.support.send_frames import plain

OTHERS = b'019"\\{}:, \n-ax\x01\x80'
EXT = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x0112\x02TAGS\x01A\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


class Pair:
    """The same frames: to one long-lived connection, and each to a new connection."""

    def __init__(self, folder: Path) -> None:
        self.known, self.fresh = FastPathHarness(folder / "known"), FastPathHarness(folder / "fresh")
        self.connection = FastPathConnection(self.known)

    def feed(self, frame: bytes) -> tuple[list[tuple[int, int]], int, bool]:
        """The result, the same for both: responses, frames left to the handlers, whether the connection was closed."""
        if self.connection.output.closing:
            self.connection = FastPathConnection(self.known)
        self.connection.output.writes.clear()
        self.connection.slow.clear()
        single = FastPathConnection(self.fresh)
        for connection in (self.connection, single):
            connection.feed(frame)
            connection.harness.timers.run()
        found = [
            (connection.answers(), len(connection.slow), connection.output.closing)
            for connection in (self.connection, single)
        ]
        assert found[0] == found[1], frame
        return found[0]

    def same_stores(self) -> bool:
        """Records, tags of the queues' entries, and what the index finds."""
        found = []
        for harness in (self.known, self.fresh):
            root = Path(harness.store.root)
            with CommitLog.open_readonly(root / "commitlog") as log:
                records = list(log.records())
            files = sorted(
                path for name in ("consumequeue", "index") for path in (root / name).rglob("[0-9]*")
            )
            found.append((records, [path.read_bytes() for path in files if path.is_file()]))
        return len(found[0][0]) > 0 and len(found[0][1]) > 1 and found[0] == found[1]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for harness in (made.known, made.fresh):
        harness.store.close()


def framed(header: bytes, body: bytes = b"body") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


def header(opaque: object = 7, ext: dict[str, object] | None = None, **members: object) -> bytes:
    known: dict[str, object] = {"code": int(RequestCode.SEND_MESSAGE_V2), "flag": 0, "language": "JAVA"}
    known |= {"opaque": opaque, "version": 401, **members, "extFields": ext or EXT}
    return json.dumps(known).encode()


def test_any_byte_may_be_another(pair: Pair) -> None:
    usual, rng = header(), random.Random(1)
    assert pair.feed(framed(usual)) == ([(7, 0)], 0, False)
    left = closed = 0
    for at in range(len(usual)):
        for other in rng.sample(OTHERS, 2):
            _, slow, gone = pair.feed(framed(usual[:at] + bytes((other,)) + usual[at + 1 :]))
            left, closed = left + slow, closed + gone
            pair.feed(framed(usual))
    assert left > 0
    assert closed > 0
    assert pair.same_stores()


VALUES = (
    "", "0", "00", "1", "01", "-1", "-0", "+1", " 1", "1 ", "1.0", "999999999", "2147483647", "2147483648", "9" * 18,
    "9" * 19, '"', "\\", "\x01", "\x02", "T", "Unknown", "ключ", "\udc80", "x" * 2000,
)  # fmt: skip
OPAQUES = (0, -1, 12, 999_999_999, 1_000_000_000, 2_147_483_647, 2_147_483_648, "7", None, 1.5)


def test_more_or_fewer_bytes_at_its_end(pair: Pair) -> None:
    for cut in range(1, 60, 7):
        pair.feed(framed(header()))
        pair.feed(framed(header()[:-cut]))
        pair.feed(framed(header() + b" " * cut))
        pair.feed(framed(header() + b"}" * cut))
    assert pair.same_stores()


@pytest.mark.parametrize("name", ["b", "e", "g", "i"])
def test_values_of_all_kinds(pair: Pair, name: str) -> None:
    for value in VALUES:
        pair.feed(framed(header()))
        pair.feed(framed(header(ext=EXT | {name: value})))
    assert pair.same_stores()


def test_numbers_of_requests(pair: Pair) -> None:
    for opaque in OPAQUES:
        pair.feed(framed(header()))
        pair.feed(framed(header(opaque)))
    assert pair.same_stores()


def test_members_in_another_order_or_twice(pair: Pair) -> None:
    usual = json.loads(header())
    rng = random.Random(2)
    for _ in range(30):
        members, ext = list(usual.items()), list(EXT.items())
        rng.shuffle(members)
        rng.shuffle(ext)
        texts = [f'"{name}":{json.dumps(value)}' for name, value in members if name != "extFields"]
        fields = ",".join(f'"{name}":{json.dumps(value)}' for name, value in [*ext, rng.choice(ext)])
        texts.insert(rng.randrange(len(texts) + 1), f'"extFields":{{{fields}}}')
        if rng.random() < 0.5:
            texts.append(rng.choice(('"opaque":9', '"extFields":{"b":"T"}', '"remark":"x"', '"flag":2')))
        for _ in range(2):
            pair.feed(framed(("{" + ",".join(texts) + "}").encode()))
    assert pair.same_stores()


UNIQUE = "UNIQ_KEY\\u000112\\u0002"
PROPERTIES = (
    "", UNIQUE, UNIQUE[:-6], f"{UNIQUE}TAGS\\u0001A", f"{UNIQUE}TAGS\\u0001BB\\u0002", f"{UNIQUE}TAGS\\u0001\\u0002",
    f"TAGS\\u0001A\\u0002{UNIQUE}", f"{UNIQUE}{UNIQUE}", f"{UNIQUE}KEYS\\u0001k1 k2\\u0002own\\u0001own\\u0002",
    f"{UNIQUE}WAIT\\u0001true\\u0002", f"{UNIQUE}WAIT\\u0001FALSE\\u0002", f"{UNIQUE}DELAY\\u00013\\u0002",
    f"{UNIQUE}wide\\u0001ключ\\u0002", f"{UNIQUE}wide\\u0001\\u043a\\u0002", f"{UNIQUE}ключ\\u0001wide\\u0002",
    f"{UNIQUE}back\\\\slash\\u0001a\\u0002", f"{UNIQUE}a\\u0001back\\\\slash\\u0002", f'{UNIQUE}a\\u0001\\"\\u0002',
    f"{UNIQUE}\\u005cu005c\\u0001a\\u0002", f"{UNIQUE}a\\u0001b\\u0001c\\u0002", f"{UNIQUE}a\x01b\x02",
    f"{UNIQUE}a\\u0001b\x02",
    f"{UNIQUE}a\\u0001b\\t\\u0002", f"{UNIQUE}a\\u0001b\x7f\\u0002", f"{UNIQUE}a\\u0001b\udc80\\u0002",
    f"{UNIQUE}a\\u0001{'x' * 600}",
    "".join(f"name{n}\\u0001{n}\\u0002" for n in range(16)), "".join(f"name{n}\\u0001{n}\\u0002" for n in range(17)),
    "".join(f"name{n}{'x' * 120}\\u0001{n}\\u0002" for n in range(5)), f"{UNIQUE}a\\u0001{'x' * 65_530}\\u0002",
)  # fmt: skip
"""Escaped as in a header."""


def with_properties(escaped: str, opaque: int) -> bytes:
    raw = json.dumps("here").encode()
    return framed(
        header(opaque, EXT | {"i": "here"}).replace(raw, b'"%s"' % escaped.encode(errors="surrogateescape"))
    )


@pytest.mark.parametrize("first", range(len(PROPERTIES)))
def test_properties_like_the_previous_ones_or_others(pair: Pair, first: int) -> None:
    for opaque, other in enumerate(PROPERTIES):
        pair.feed(with_properties(PROPERTIES[first], opaque))
        pair.feed(with_properties(PROPERTIES[first].replace("12", "3456"), opaque))
        pair.feed(with_properties(other, opaque))
    assert pair.same_stores()


def test_any_byte_of_properties_may_be_another(pair: Pair) -> None:
    text, rng = f"{UNIQUE}WAIT\\u0001true\\u0002TAGS\\u0001A{'b' * 20}\\u0002", random.Random(3)
    for at in range(len(text)):
        for other in rng.sample('\x01\x02\x1f\x7f\udc80"\\u02A ', 4):
            pair.feed(with_properties(text, at))
            pair.feed(with_properties(text[:at] + other + text[at + 1 :], at))
            pair.feed(with_properties(text[:at] + other + text[at:], at))
    assert pair.same_stores()


def test_a_template_without_properties_is_recognized(pair: Pair) -> None:
    bare = {name: value for name, value in EXT.items() if name != "i"}
    for opaque in range(3):
        assert pair.feed(framed(header(opaque, bare))) == ([(opaque, 0)], 0, False)
    assert pair.feed(framed(header(3))) == ([(3, 0)], 0, False)
    assert pair.same_stores()


def test_unquoted_numbers_are_recognized(pair: Pair) -> None:
    for opaque, queue_id in ((1, 0), (2, 1), (3, 2), (4, -1), (5, 1)):
        pair.feed(framed(header(opaque, EXT | {"e": queue_id, "g": 5 + opaque})))
    assert pair.same_stores()


def test_a_long_header_is_read_as_a_whole_each_time(pair: Pair) -> None:
    for opaque in range(3):
        assert pair.feed(framed(header(opaque, EXT | {"n": "b" * 2000})))[0] == [(opaque, 0)]
    assert pair.same_stores()


def test_forms_alternate(pair: Pair) -> None:
    for opaque in range(6):
        pair.feed(plain(opaque, queue_id=opaque % 2, oneway=opaque == 3))
        pair.feed(framed(header(opaque)))
    assert pair.same_stores()


def counts(pair: Pair) -> tuple[int, int]:
    """Sends of the long-lived connection whose headers matched a template, and others."""
    (found,) = pair.known.counters.all()
    assert found.left() == {}
    return found.templated, found.parsed


def test_every_32_bit_request_number_matches(pair: Pair) -> None:
    """Java's clients count in one number: a billion after a day of 10,000 sends a second, and later negative."""
    numbers = (1, 999_999_999, 1_000_000_000, 2_147_483_647, -2_147_483_648, -1, 0, 12)
    for opaque in numbers:
        assert pair.feed(framed(header(opaque))) == ([(opaque, 0)], 0, False)
    assert counts(pair) == (len(numbers) - 1, 1)


RECORDED = (Path(__file__).parent / "recorded_sends.txt").read_bytes().splitlines(keepends=True)
"""Headers of sends, a line each: two of Apache's C++ client 1.2, which ends them so, and two of rocketmq-rust 1.0.0."""


@pytest.mark.parametrize("texts", [RECORDED[:2], RECORDED[2:]], ids=["cpp", "rust"])
def test_recorded_sends_of_other_clients_match(pair: Pair, texts: list[bytes]) -> None:
    """Numbers with and without quotes, a boolean as `0`, a signature that changes."""
    for text in texts:
        sent = text.replace(b'"topic":"Load"', b'"topic":"T"')
        answers, left, _ = pair.feed(framed(sent))
        assert (answers, left) == ([(json.loads(sent)["opaque"], 0)], 0)
    assert counts(pair) == (1, 1)
    assert pair.same_stores()


def test_a_signature_is_a_value(pair: Pair) -> None:
    for opaque, signature in enumerate(("a", "", "b" * 60, "x/y+z=")):
        assert pair.feed(framed(header(opaque, EXT | {"Signature": signature}))) == ([(opaque, 0)], 0, False)
    assert counts(pair) == (3, 1)
    assert pair.feed(framed(header(9, EXT | {"Signature": "я"})))[1] == 1
    assert pair.same_stores()


def forms(count: int) -> list[bytes]:
    """Frames of as many producer groups; every second has compressed bodies."""
    return [framed(header(ext=EXT | {"a": f"PG{n}", "f": str(n % 2)})) for n in range(count)]


def test_a_connection_remembers_four_forms(pair: Pair) -> None:
    rng = random.Random(2)
    for frame in [*forms(4), *rng.choices(forms(4), k=200)]:
        pair.feed(frame)
    assert counts(pair) == (200, 4)
    assert pair.same_stores()


def test_the_form_that_was_not_used_for_the_longest_time_is_forgotten(pair: Pair) -> None:
    first, *others, fifth = forms(5)
    for frame in (first, *others, first, fifth):
        pair.feed(frame)
    assert counts(pair) == (1, 5)
    for frame in (first, *others[1:], fifth):
        pair.feed(frame)
    assert counts(pair) == (5, 5)
    pair.feed(others[0])
    assert counts(pair) == (5, 6)
    assert pair.same_stores()


def test_a_header_that_is_too_long_for_a_template_is_parsed(pair: Pair) -> None:
    long = framed(header(ext=EXT | {"a": "G" * 1100}))
    for frame in (long, long, framed(header()), long, framed(header())):
        pair.feed(frame)
    assert counts(pair) == (1, 4)
    assert pair.same_stores()


def test_what_leaves_the_fast_path_is_counted_by_its_reason(pair: Pair) -> None:
    pair.feed(framed(header()))
    for ext, body, reason in (
        ({"b": "Unknown"}, b"body", "topic"),
        ({"i": "DELAY\x013\x02"}, b"body", "properties"),
        ({"e": "x"}, b"body", "fields"),
        ({}, b"", "body"),
    ):
        before = sum(sends for sends, _ in pair.known.counters.all()[0].left().values())
        pair.feed(framed(header(ext=EXT | ext), body))
        left = pair.known.counters.all()[0].left()
        assert left[reason] == (1, 0)
        assert sum(sends for sends, _ in left.values()) == before + 1


def test_a_client_whose_fields_have_no_order_is_parsed(pair: Pair) -> None:
    """After some sends, templates are tried rarely; a usual header in their place matches again."""
    rng = random.Random(4)
    for _ in range(600):
        pair.feed(framed(header(ext=dict(rng.sample(list(EXT.items()), len(EXT))))))
    templated, parsed = counts(pair)
    assert templated + parsed == 600
    assert parsed > 590
    for _ in range(600):
        pair.feed(framed(header()))
    assert counts(pair)[0] > templated + 300
    assert pair.same_stores()


def test_kinds_of_clients_are_bounded(pair: Pair) -> None:
    for version in range(70):
        pair.feed(framed(header(version=version)))
    found = pair.known.counters.all()
    assert len(found) == 65
    assert (found[-1].language, found[-1].version, found[-1].parsed) == (-1, -1, 6)
