"""How the time of a parser grows: inputs in which one piece is repeated, at n and 4n bytes.

`python -m tests.hostile.fuzz --growth` does so for minutes. A linear parser takes four times as long; one that takes
NINE times as long or more, and longer than FLOOR_S, holds up everybody who waits for the loop.
"""

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.hostile.fuzz import SLOW_S, Found, Target

FLOOR_S = 0.04
FACTOR = 4
NINE = 9.0
"""Between 4 (linear) and 16 (quadratic); n·log n is below 5."""
SIZES = (2 << 10, 16 << 10)
"""The small size first: it finds what takes long with each byte; the large one what takes little."""
ROUNDS = 3
PIECES = (
    b" ", b"\t", b"\n", b"\r\n", b"a", b"0", b"9", b"f", b".", b"-", b"+", b"_", b"%", b"\0", b"\x01", b"\x02", b"\xff",
    b"'", b'"', b"''", b'\\"', b"\\", b"/", b"//", b"/*", b"--", b"#", b"!", b"=", b"(", b")", b"[", b"]", b"{", b"}",
    b",", b":", b";", b"|", b"||", b"&&", b"*", b"a=", b"a:b\r\n", b'"a":', b'{"a":', b"[[", b"[]", b"{},", b"1,",
    b'"",', b"- ", b"- a\n", b"a: b\n", b"a\x01b\x02", b"a ", b" a", b"NOT ", b"+ ", b"1 ", b"'a',", b"a || ",
    b"a AND ", b"\xc3\xa9",
)  # fmt: skip
TAILS = (b"", b"!", b"\x01", b'"', b"'", b"}", b"]", b"\n", b"\\", b"x")


NUMBER = b"#"


@dataclass(frozen=True)
class Shape:
    """`head`, `piece` again and again, `tail`. A `numbered` piece has its number in place of NUMBER."""

    head: bytes
    piece: bytes
    tail: bytes
    numbered: bool = False

    def of(self, length: int) -> bytes:
        count = max(1, length // len(self.piece))
        if not self.numbered:
            return self.head + self.piece * count + self.tail
        pieces = (self.piece.replace(NUMBER, b"%d" % number) for number in range(count))
        return self.head + b"".join(pieces) + self.tail


def items(seed: bytes) -> list[Shape]:
    """For each list of a JSON text, its first item again and again; with other texts and numbers each time, too."""
    found = []
    for at in (at for at, byte in enumerate(seed) if byte == ord("[")):
        depth, end = 0, at + 1
        while end < len(seed) and (depth or seed[end] not in b",]"):
            depth += (seed[end] in b"[{") - (seed[end] in b"]}")
            end += 1
        item = seed[at + 1 : end]
        if item and end < len(seed):
            other = item.replace(b'"', b'"#', 1) if item.startswith(b'"') else item
            for word in (b'"T', b'"G', b'"T2', b'"queueId": '):
                other = other.replace(word, word + NUMBER)
            found += [
                Shape(seed[: at + 1], item + b",", seed[at + 1 :]),
                Shape(seed[: at + 1], other + b",", seed[at + 1 :], numbered=True),
            ]
    return found


def drawn(draw: random.Random, seeds: list[bytes]) -> Shape:
    """A seed in which a piece of it, or one of PIECES, is repeated somewhere; what follows may be cut or changed."""
    seed = draw.choice(seeds)
    lists = items(seed) if draw.random() < 0.25 else []
    if lists:
        return draw.choice(lists)
    at = draw.randint(0, len(seed))
    own = seed[at : at + draw.randint(1, 12)] if draw.random() < 0.3 else b""
    piece = own or draw.choice(PIECES)
    rest = draw.choice((seed[at:], seed[at + 1 :], b""))
    return Shape(seed[:at], piece, draw.choice(TAILS) + rest)


Clock = Callable[[], float]
"""CPU seconds of the thread that reads: other work of this machine does not count."""


def seconds(target: Target, data: bytes, clock: Clock, rounds: int = 1) -> float:
    """The shortest of some rounds. Other faults are those of the fuzzer.

    A collection of garbage in between would take the longer the more the tests before have left in this process.
    """
    best = float("inf")
    for _ in range(rounds):
        gc.disable()
        begun = clock()
        try:
            target.read(data)
        except target.refusals:
            pass
        except Exception as error:
            raise Found(
                f"{target.name} raised {type(error).__name__} for {len(data)} bytes: {data[:60]!r}"
            ) from error
        finally:
            took = clock() - begun
            gc.enable()
        best = min(best, took)
    return best


def grows(target: Target, shape: Shape, size: int, clock: Clock) -> bool:
    """A large ratio is measured again, since this machine may be busy. One piece more may decide where a parser gives
    up (quotes come in pairs), so the small size is measured with an even and with an odd number of pieces."""
    if seconds(target, shape.of(size), clock) > SLOW_S:
        return True
    high = seconds(target, shape.of(FACTOR * size), clock)
    if high < FLOOR_S:
        return False
    low = max(seconds(target, shape.of(each), clock, ROUNDS) for each in (size, size + len(shape.piece)))
    for _ in range(ROUNDS):
        if high < FLOOR_S or high < NINE * low:
            return False
        high = min(high, seconds(target, shape.of(FACTOR * size), clock))
    return True


def check(target: Target, shape: Shape, clock: Clock = time.thread_time) -> None:
    """Raises Found."""
    for size in SIZES:
        if grows(target, shape, size, clock):
            raise Found(
                f"{target.name} grows faster than its input: {FACTOR * size} bytes of {shape.piece!r} after "
                f"{shape.head[-60:]!r}, then {shape.tail[:60]!r}"
            )


def run(target: Target, for_s: float, seed: int) -> int:
    """How many shapes were tried. Raises Found."""
    draw, seeds, tried = random.Random(f"{target.name} {seed}"), target.seeds(), 0
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        check(target, drawn(draw, seeds))
        tried += 1
    return tried


def run_requests(for_s: float, seed: int) -> int:
    """The same over a broker's sockets, another request each time."""
    from tests.hostile.targets_requests import served  # noqa: PLC0415 (it starts brokers)

    draw, tried = random.Random(f"requests {seed}"), 0
    with served(draw) as broker:
        until = time.monotonic() + for_s
        try:
            while time.monotonic() < until:
                target = broker.target()
                check(target, drawn(draw, target.seeds()), broker.loop_s)
                tried += 1
        finally:
            broker.close()
    return tried
