from typing_extensions import Buffer

def put_note(page: Buffer, at: int, kind: int, name: bytes, number: int, value: int, end: int) -> int:
    """Writes one entry at `at` of a writable page; where it ends. ValueError: it does not fit, or its name is too long;
    OverflowError: a number is."""
