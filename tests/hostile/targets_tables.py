"""Parsers of config files: each table loads a text, or refuses it and stays as it was."""

from collections.abc import Callable
from typing import Protocol

from firearrow.broker.grpc.receipt_table import ReceiptHandleTable
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicTable
from tests.hostile.fuzz import Target
from tests.support.clock import ManualClock

CLOCK = ManualClock()


class Table(Protocol):
    def load(self, text: bytes) -> None: ...
    def to_json(self) -> bytes: ...


def reads(make: Callable[[], Table]) -> Callable[[bytes], None]:
    """What was accepted is written in a form that is accepted again; what was refused has changed nothing."""

    def read(data: bytes) -> None:
        table = make()
        before = table.to_json()
        try:
            table.load(data)
        except ValueError:
            assert table.to_json() == before
            raise
        make().load(table.to_json())

    return read


def topics() -> TopicTable:
    return TopicTable(CLOCK)


def groups() -> GroupTable:
    return GroupTable(CLOCK)


def offsets() -> ConsumerOffsets:
    return ConsumerOffsets(CLOCK)


def filled_topics() -> list[bytes]:
    table = topics()
    table.create("T", 4)
    return [table.to_json()]


def filled_groups() -> list[bytes]:
    table = groups()
    table.find("G")
    table.forbid_reading("G", "T", True)
    return [table.to_json()]


def filled_offsets() -> list[bytes]:
    table = offsets()
    for queue_id in range(4):
        table.commit("G", "T", queue_id, 7 * queue_id)
    table.note_pull("G", "T", 0, 5)
    return [table.to_json()]


TABLES = (
    Target("topics.json", filled_topics, reads(topics)),
    Target("subscriptionGroup.json", filled_groups, reads(groups)),
    Target("consumerOffset.json", filled_offsets, reads(offsets)),
    Target(
        "delayOffset.json",
        lambda: [b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"offsetTable":{1:5,2:7}}'],
        reads(lambda: DelayOffsets(CLOCK)),
    ),
    Target(
        "messageRequestMode.json",
        lambda: [
            b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":3,"topic":"T"}}}}'
        ],
        reads(RequestModes),
    ),
    Target(
        "consumerOrderInfo.json",
        lambda: [
            b'{"table":{"T@G":{0:{"a":"x","c":0,"cm":0,"i":60000,"l":1,"o":[5,1],"ot":{5:7},"oc":{"0":1},"popTime":1700000000000}}}}'
        ],
        reads(lambda: ConsumerOrderInfo(CLOCK)),
    ),
    Target(
        "receiptHandles.json",
        lambda: [
            b'{"logOffset":1,"clients":[{"clientId":"c","user":"",'
            b'"handles":[["G","T","0 1700000000000 60000 0 0 b 0 1 2",1,2]]}]}'
        ],
        reads(lambda: ReceiptHandleTable(CLOCK)),
    ),
    Target(
        "kvConfig.json",
        lambda: [b'{"configTable":{"N":{"k":"v"}}}'],
        reads(lambda: KvTable(lambda: None)),
    ),
)
