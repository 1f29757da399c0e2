"""Message ids: the forms that clients parse."""

import pytest

from firearrow.broker.base.message_ids import host_bytes, offset_id, unique_ids


@pytest.mark.parametrize(
    ("ip", "raw"),
    [
        ("127.0.0.1", "7f00000100002a9f"),
        ("::ffff:10.1.2.3", "0a01020300002a9f"),
        ("fe80::1%eth0", "fe80000000000000000000000000000100002a9f"),
    ],
)
def test_hosts_as_records_store_them(ip: str, raw: str) -> None:
    assert host_bytes(ip, 10911).hex() == raw


def test_an_offset_id_is_that_of_the_golden_store() -> None:
    assert offset_id(host_bytes("127.0.0.2", 20911), 0x226E4) == "7F000002000051AF00000000000226E4"


def test_unique_ids_contain_the_stores_address_and_differ_between_generators() -> None:
    one, other = (unique_ids(host_bytes("127.0.0.1", 10911)) for _ in range(2))
    made = [ids.at(1_800_000_000_000) for ids in (one, other) for _ in range(100)]
    assert len(set(made)) == 200
    assert all(len(each) == 32 and each.startswith("7F000001") for each in made)
    assert len(unique_ids(host_bytes("fe80::1", 10911)).next()) == 56
