"""Invalid requests: each gets one response with a code and a remark; the connection stays open."""

import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.integration.latency_probe import LatencyProbe
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import SUBSCRIPTION, pull, pull_ext, send, send_ext, topic_ext

HANDLERS = Path(__file__).resolve().parents[2] / "broker"
NOT_SERVED = 3
CODES = sorted({int(code) for code in RequestCode})
GARBAGE = (
    "",
    "-1",
    "x",
    "9223372036854775808",
    "-2147483649",
    "\x00\x01\x02",
    "☃" * 50,
    "a" * 5000,
    "{[",
    "null",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("requests") / "store") as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as opened:
        yield opened


def field_names() -> list[str]:
    """Every field that a handler reads."""
    found: set[str] = set("abcdefghijkm")
    for path in HANDLERS.rglob("*.py"):
        found |= set(re.findall(r"(?:text|integer|boolean)(?:_or)?\(\s*\"(\w+)\"", path.read_text()))
    assert len(found) > 40
    return sorted(found)


def sensible() -> dict[str, str]:
    return (
        dict.fromkeys(field_names(), "1")
        | send_ext("Sensible")
        | topic_ext("Sensible")
        | pull_ext("Sensible")
    )


def answers(connection: ClientSocket, asked: list[tuple[int, dict[str, str], bytes]]) -> dict[int, int]:
    """Send all, read exactly one response to each: index in `asked` → code."""
    opaques = {connection.send_request(*request): index for index, request in enumerate(asked)}
    found: dict[int, int] = {}
    while len(found) < len(opaques):
        answer = connection.receive()
        if answer.is_response:
            index = opaques[answer.opaque]
            assert index not in found, f"two responses to {asked[index]}"
            found[index] = answer.code
    return found


def test_every_code_without_fields(broker: BrokerProcess, connection: ClientSocket) -> None:
    found = answers(connection, [(code, {}, b"") for code in [*CODES, 9999, -1, 2**31 - 1]])
    served = [code for code in found.values() if code != NOT_SERVED]
    assert len(served) > 50
    with broker.connect_name_server() as naming:
        assert len(answers(naming, [(code, {}, b"") for code in CODES])) == len(CODES)
    assert "Traceback" not in broker.log.read_text()


def test_every_code_with_each_field_garbage(broker: BrokerProcess, connection: ClientSocket) -> None:
    base = sensible()
    draw = random.Random(3)
    probe = answers(connection, [(code, {}, b"") for code in CODES])
    served = [CODES[index] for index, code in probe.items() if code != NOT_SERVED]
    for code in served:
        asked = [(code, base | {name: draw.choice(GARBAGE)}, draw.choice((b"", b"x"))) for name in base]
        assert len(answers(connection, asked)) == len(base), code
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"x"', b"1", b"{" * 5000, b"\xff" * 9, b'{"a":' * 500]
)
def test_every_code_with_a_bad_body(broker: BrokerProcess, connection: ClientSocket, body: bytes) -> None:
    base = sensible()
    assert len(answers(connection, [(code, base, body) for code in CODES])) == len(CODES)
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("letter", "abcdefgh")
def test_send_without_a_field_names_it(connection: ClientSocket, letter: str) -> None:
    ext = send_ext("Fields")
    del ext[letter]
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
    assert answer.code == 1
    assert answer.remark is not None
    assert letter in answer.remark


@pytest.mark.parametrize("letter", "defgh")
@pytest.mark.parametrize("text", ["", "x", "1.5", "9223372036854775808", "1e3"])
def test_send_with_a_field_of_another_type_names_it(connection: ClientSocket, letter: str, text: str) -> None:
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Fields") | {letter: text}, b"x")
    assert answer.code == 1
    assert answer.remark is not None
    assert letter in answer.remark


@pytest.mark.parametrize(
    "topic", ["", " ", "a b", "../../etc", "a/b", "a\x00b", "ü", "t" * 128, "t" * 40_000]
)
def test_topic_names_are_checked(broker: BrokerProcess, connection: ClientSocket, topic: str) -> None:
    assert send(connection, topic, b"x").code not in (0, 5, 2)
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code not in (0, 2)
    queues = {path.name for path in (broker.store / "consumequeue").glob("*")}
    assert all(re.fullmatch(r"[%|a-zA-Z0-9_-]+", name) for name in queues)


@pytest.mark.parametrize("queue_id", [4, 4096, 2**31 - 1])
def test_queue_ids_over_the_topic(connection: ClientSocket, queue_id: int) -> None:
    assert send(connection, "Bounded", b"x").code == 0
    answer = send(connection, "Bounded", b"x", queue_id)
    assert answer.code == 29 or "queueId" in (answer.remark or "")
    assert answer.code != 0


def test_a_negative_queue_id_chooses_one(connection: ClientSocket) -> None:
    answer = send(connection, "Any", b"x", -1)
    assert answer.code == 0
    assert 0 <= int(answer.ext["queueId"]) < 4


def test_bodies_over_the_limit(connection: ClientSocket) -> None:
    limit = 4 << 20
    assert send(connection, "Big", bytes(limit)).code == 0
    answer = send(connection, "Big", bytes(limit + 1))
    assert answer.code == 13
    assert str(limit) in (answer.remark or "")


def test_properties_over_the_limit(connection: ClientSocket) -> None:
    ext = send_ext("Props", i="k\x01" + "v" * 32_767 + "\x02")
    assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x").code == 13
    fits = send_ext("Props", i="k\x01" + "v" * 32_000 + "\x02")
    assert connection.ask(RequestCode.SEND_MESSAGE_V2, fits, b"x").code == 0


@pytest.mark.parametrize("queue_id", ["-1", "4", "2147483647", "-2147483648"])
def test_pulls_of_missing_queues(connection: ClientSocket, queue_id: str) -> None:
    assert send(connection, "Pulled", b"x").code == 0
    answer = pull(connection, "Pulled", queueId=queue_id)
    assert answer.code not in (0, 19)
    assert "queueId" in (answer.remark or "")


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 10**12])
def test_pulls_at_missing_offsets(connection: ClientSocket, offset: int) -> None:
    assert send(connection, "Offsets", b"x").code == 0
    answer = pull(connection, "Offsets", offset)
    assert answer.code == 21
    assert 0 <= int(answer.ext["nextBeginOffset"]) <= int(answer.ext["maxOffset"])


@pytest.mark.parametrize("count", ["-1", "0", "1", "-2147483648", "2147483647"])
def test_counts_are_bounded(connection: ClientSocket, count: str) -> None:
    assert send(connection, "Counts", b"x").code == 0
    assert pull(connection, "Counts", maxMsgNums=count).code == 0


def item(body: bytes, properties: bytes = b"", *, size: int | None = None) -> bytes:
    """One message of a batch: size, magic, crc, flag, body, properties."""
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4 if size is None else size) + rest


def batches() -> dict[str, bytes]:
    good = item(b"first") + item(b"second")
    return {
        "cut in the size": good + b"\x00\x00",
        "cut in an item": good[:-3],
        "size 0": good + item(b"x", size=0),
        "negative size": good + item(b"x", size=-1),
        "size over the body": good + item(b"x", size=2**31 - 1),
        "size too small": item(b"x", size=5),
        "body over the item": struct.pack(">iiiii", 30, 0, 0, 0, 1 << 30) + bytes(10),
        "garbage": random.Random(5).randbytes(300),
    }


@pytest.mark.parametrize("name", batches())
def test_malformed_batches_are_refused_whole(connection: ClientSocket, name: str) -> None:
    topic = "Batch"
    send(connection, topic, b"before")
    ends = {"topic": topic, "queueId": "0"}
    before = connection.ask(RequestCode.GET_MAX_OFFSET, ends).ext["offset"]
    answer = connection.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext(topic, m="true"), batches()[name])
    assert answer.code == 13, answer.remark
    assert connection.ask(RequestCode.GET_MAX_OFFSET, ends).ext["offset"] == before


def test_a_batch_in_a_batch_is_one_body(connection: ClientSocket) -> None:
    inner = item(b"a") + item(b"b")
    answer = connection.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("Nested", m="true"), item(inner))
    assert answer.code == 0
    assert (
        connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Nested", "queueId": "0"}).ext["offset"] == "1"
    )
    assert inner in pull(connection, "Nested").body


def test_a_zlib_bomb_is_bounded(broker: BrokerProcess) -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()
    ext = {
        "brokerName": "bomb",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": "0",
        "compressed": "true",
        "bodyCrc32": str(zlib.crc32(bomb) & 0x7FFFFFFF),
    }
    before = broker.anonymous_kib()
    with LatencyProbe(broker), broker.connect_name_server() as naming:
        assert naming.ask(RequestCode.REGISTER_BROKER, ext, bomb).code != 0
    assert broker.anonymous_kib() - before < 150_000


def test_unknown_expression_and_subscription(connection: ClientSocket) -> None:
    assert send(connection, "Filter", b"x").code == 0
    assert pull(connection, "Filter", expressionType="SQL92", subscription="a > 1").code == 1
    assert pull(connection, "Filter", expressionType="NONSENSE").code == 1
    assert pull(connection, "Filter", sysFlag="0", consumerGroup="Nobody").code == 24
    assert pull(connection, "Filter", sysFlag=str(SUBSCRIPTION)).code == 0
