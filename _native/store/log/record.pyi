from dataclasses import dataclass

class RecordError(ValueError):
    """Bytes that are not a record; the message says what is wrong."""

@dataclass(frozen=True, slots=True)
class Record:
    """One decoded record. Hosts: 4 or 16 address bytes and an i32 port; `body` as stored, maybe
    compressed."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties_bytes: bytes
    @property
    def properties(self) -> dict[str, str]: ...

def decode(data: bytes | bytearray | memoryview, check_crc: bool = True) -> Record:
    """The record at the start of `data`; later bytes are ignored. RecordError."""
