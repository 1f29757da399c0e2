"""Mutations: valid bytes, changed as by bit rot, torn writes and attackers. Reproducible by the random generator."""

import random
from collections.abc import Sequence

NUMBERS = tuple(
    (value & (1 << 8 * width) - 1).to_bytes(width)
    for width in (1, 2, 4, 8)
    for value in (
        0,
        1,
        -1,
        127,
        128,
        255,
        32767,
        32768,
        65535,
        (1 << 31) - 1,
        -(1 << 31),
        1 << 24,
        (1 << 63) - 1,
    )
    if value.bit_length() <= 8 * width
)
WORDS = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"9" * 25, b"\x01", b"\x02",
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "\u0663".encode(), b" ", b"'", b"(", b")", b"||", b"$ref", b"@", b"%RETRY%",
)  # fmt: skip
BYTES_MAX = 1 << 20


def mutated(draw: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """One to six changes; `others` provide parts."""
    data = bytearray(raw)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(9):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                number = draw.choice(NUMBERS)
                data[at : at + len(number)] = number
            case 2:
                del data[at : at + draw.randint(1, 16)]
            case 3:
                data[at:at] = draw.choice(WORDS)
            case 4:
                del data[at:]
            case 5:
                data[at : at + draw.randint(1, 4096)] = bytes(draw.randint(0, 64))
            case 6:
                chunk = data[at : at + draw.randint(1, 64)]
                data[at:at] = chunk * draw.randint(1, 20)
            case 7 if others:
                other = draw.choice(others)
                begin = draw.randrange(len(other) + 1)
                data[at : at + draw.randint(0, 64)] = other[begin : begin + draw.randint(1, 200)]
            case _:
                data[at : at + 4] = draw.randbytes(4)
    return bytes(data[:BYTES_MAX])
