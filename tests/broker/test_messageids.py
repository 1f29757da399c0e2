"""Message ids: the forms that clients take apart again."""

import datetime

import pytest

from firearrow.broker.messageids import UniqueIds, host_bytes, offset_id


@pytest.mark.parametrize(
    ("ip", "raw"),
    [
        ("127.0.0.1", "7f00000100002a9f"),
        ("::ffff:10.1.2.3", "0a01020300002a9f"),
        ("fe80::1%eth0", "fe80000000000000000000000000000100002a9f"),
    ],
)
def test_hosts_as_records_hold_them(ip: str, raw: str) -> None:
    assert host_bytes(ip, 10911).hex() == raw


def test_an_offset_id_is_that_of_the_golden_store() -> None:
    assert offset_id(host_bytes("127.0.0.2", 20911), 0x226E4) == "7F000002000051AF00000000000226E4"


def test_unique_ids_are_unique_and_tell_their_time() -> None:
    ids = UniqueIds(bytes([127, 0, 0, 1]))
    now_ms = int(datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC).timestamp() * 1000)
    made = [ids.next(now_ms) for _ in range(65536)]
    assert len(set(made)) == 65536
    assert all(len(one) == 32 and one.startswith("7F000001") for one in made)
    began = (
        datetime.datetime.fromtimestamp(now_ms / 1000)
        .astimezone()
        .replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    )
    assert int(made[0][20:28], 16) == now_ms - int(began.timestamp() * 1000)
