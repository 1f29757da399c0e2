"""A broker's registration with a name server (REGISTER_BROKER 103), read and written. Sends nothing.

Received bodies are JSON, the zlib form of 4.x, or the bare topic wrapper of brokers before 3.0.11. Every
count, every length and the inflated size is limited. Pure functions; any thread.

`BrokerAnnouncement` is what our broker registers: as a value with its own name server, as header and body
with others. It is a snapshot taken in the loop thread; its bodies may be built in another thread.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.name_rules import PERM_READ, PERM_WRITE
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.json_fields import items, members, members_or_none, number
from firearrow.broker.tables.topics import TopicConfig

INFLATED_BYTES_MAX = 32 << 20
LENIENT_BYTES_MAX = 1 << 20
"""Registrations with static topic mappings have bare numbers as keys, which only the lenient parser reads."""
TOPICS_MAX = 100_000
VALUES_MAX = 20 * TOPICS_MAX
QUEUES_MAX = 65_536
FILTER_SERVERS_MAX = 64
NAME_CHARS_MAX = 255
PERM_MAX = 15
BODY_VERSION_MIN = 37
"""V3_0_11: older brokers send the bare topic wrapper."""


class QueueData(NamedTuple):
    """The queues of one topic on one broker."""

    read_queues: int
    write_queues: int
    perm: int
    topic_flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """`ha_address` empty: the broker does not replicate.

    None means: the default `timeout_ms`, a broker before 5.0 (`acting_master`), unchanged `filter_servers`.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    topics: Mapping[str, QueueData]
    filter_servers: Sequence[str] | None = None
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None


class RegisterBody(NamedTuple):
    version: DataVersion
    topics: Mapping[str, QueueData]
    filter_servers: Sequence[str] | None


def register_body(body: bytes, client_version: int, compressed: bool) -> RegisterBody:
    """Parse a register body. ValueError names the member that is wrong."""
    if not body:
        return RegisterBody(DataVersion(), {}, None)
    if client_version < BODY_VERSION_MIN:
        return _wrapper(_document(body), None)
    if compressed:
        return _Compressed(_inflated(body)).register_body()
    document = members(_document(body), "the body")
    filters = document.get("filterServerList")
    wrapper = document.get("topicConfigSerializeWrapper")
    return _wrapper(wrapper, None if filters is None else _filter_servers(filters))


def _document(body: bytes) -> object:
    """Parsed in a separate thread if it is large, so it may contain more values than other bodies."""
    return fastjson.loads_body(body, lenient_bytes_max=LENIENT_BYTES_MAX, values_max=VALUES_MAX)


def queue_data(config: Mapping[Any, Any]) -> QueueData:
    """The queue members of a TopicConfig or QueueData; missing ones have the defaults of Apache's class."""
    return QueueData(
        number(config, "readQueueNums", 16, high=QUEUES_MAX),
        number(config, "writeQueueNums", 16, high=QUEUES_MAX),
        number(config, "perm", 6, high=PERM_MAX),
        number(config, "topicSysFlag", 0),
    )


def name(value: object, member: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX or not value.isprintable():
        raise ValueError(f"{member} must be 1 to {NAME_CHARS_MAX} printable characters")
    return value


def _wrapper(document: object, filters: Sequence[str] | None) -> RegisterBody:
    wrapper = members(document, "topicConfigSerializeWrapper")
    table = members_or_none(wrapper.get("topicConfigTable"), "topicConfigTable")
    if len(table) > TOPICS_MAX:
        raise ValueError(f"topicConfigTable holds {len(table)} topics, at most {TOPICS_MAX}")
    topics = {}
    for key, value in table.items():
        config = members(value, "a topic of topicConfigTable")
        topics[name(config.get("topicName", key), "topicName")] = queue_data(config)
    version = wrapper.get("dataVersion")
    return RegisterBody(
        DataVersion() if version is None else DataVersion.from_object(version), topics, filters
    )


def _filter_servers(value: object) -> list[str]:
    servers = items(value, "filterServerList")
    if len(servers) > FILTER_SERVERS_MAX:
        raise ValueError(f"filterServerList holds {len(servers)}, at most {FILTER_SERVERS_MAX}")
    return [name(server, "filterServerList") for server in servers]


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"the body is not a zlib stream: {error}") from None
    if stream.unconsumed_tail:
        raise ValueError(f"the body inflates to more than {INFLATED_BYTES_MAX} bytes")
    if not stream.eof:
        raise ValueError("the body is a truncated zlib stream")
    return inflated


class _Compressed:
    """Reads the inflated form: fields with a length in front, in a fixed order. Ignores static topic
    mappings."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def register_body(self) -> RegisterBody:
        version = DataVersion.from_object(fastjson.loads_body(self._field("dataVersion")))
        count = self._number("the number of topics")
        if not 0 <= count <= TOPICS_MAX:
            raise ValueError(f"the number of topics is {count}, at most {TOPICS_MAX}")
        topics = dict(self._topic() for _ in range(count))
        filters = _filter_servers(fastjson.loads_body(self._field("filterServerList")))
        return RegisterBody(version, topics, filters)

    def _topic(self) -> tuple[str, QueueData]:
        words = self._field("a topic").decode("utf-8", "replace").split(" ", 5)
        if len(words) < 5:
            raise ValueError("a topic of the body has fewer than five words")
        config = {"readQueueNums": words[1], "writeQueueNums": words[2], "perm": words[3]}
        return name(words[0], "topicName"), queue_data(config)

    def _field(self, what: str) -> bytes:
        size = self._number(what)
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(
                f"the length of {what} is {size}, the body has {len(self._data) - self._at} bytes left"
            )
        field = self._data[self._at : self._at + size]
        self._at += size
        return field

    def _number(self, what: str) -> int:
        if len(self._data) - self._at < 4:
            raise ValueError(f"the body ends before {what}")
        (number,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(number)


PART_TOPICS = 20_000
"""Most topics in one body, which so stays far below a frame's limit."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """`host` empty: the address by which a client reaches us. `bound`: where we listen, empty for
    everywhere. `ha_port` 0: nothing is replicated; `ha_host` empty: as `host`. `acting_ms`: after which silence
    name servers drop us, with enableSlaveActingMaster; 0: without."""

    cluster: str
    broker: str
    host: str
    port: int
    broker_id: int = 0
    bound: str = ""
    ha_host: str = ""
    ha_port: int = 0
    acting_ms: int = 0

    def address(self, host: str) -> str:
        """`host:port`; `host` is used if none is configured; if empty, name servers fill in each client's."""
        host = self.host or host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def ext(self, host: str) -> dict[str, str]:
        """The header that 103 and 104 have in common."""
        return {
            "brokerAddr": self.address(host),
            "brokerId": str(self.broker_id),
            "brokerName": self.broker,
            "clusterName": self.cluster,
        }

    def ha_address(self, host: str) -> str:
        """The field `haServerAddr`, which name servers require. Port 0: there is no replication."""
        return replace(self, host=self.ha_host or self.host, port=self.ha_port).address(host)


class BrokerAnnouncement(NamedTuple):
    identity: BrokerIdentity
    version: DataVersion
    topics: Sequence[TopicConfig]

    @staticmethod
    def of(
        identity: BrokerIdentity, version: DataVersion, topics: Iterable[TopicConfig], permission: int
    ) -> "BrokerAnnouncement":
        """`permission` is brokerPermission: unless it has read and write, every topic's permission is limited
        to it."""
        configs = list(topics)
        if permission & (PERM_READ | PERM_WRITE) != PERM_READ | PERM_WRITE:
            configs = [replace(config, perm=config.perm & permission) for config in configs]
        return BrokerAnnouncement(identity, version, configs)

    def registration(self) -> Registration:
        identity = self.identity
        return Registration(
            cluster=identity.cluster,
            broker=identity.broker,
            broker_id=identity.broker_id,
            address=identity.address(""),
            ha_address=identity.ha_address("") if identity.ha_port else "",
            version=self.version,
            topics={
                config.name: QueueData(config.read_queues, config.write_queues, config.perm, config.sys_flag)
                for config in self.topics
            },
            acting_master=identity.acting_ms > 0,
        )

    def bodies(self) -> Iterator[bytes]:
        """Bodies of REGISTER_BROKER, to be sent one after another.

        A name server accepts changes only with a new version: each body has a different one, the last the
        real one.
        """
        starts = range(0, max(len(self.topics), 1), PART_TOPICS)
        for left, start in zip(reversed(range(len(starts))), starts, strict=True):
            version = self.version._replace(timestamp=self.version.timestamp - left)
            table = {config.name: config.to_object() for config in self.topics[start : start + PART_TOPICS]}
            wrapper = {
                "dataVersion": version.to_object(),
                "mappingDataVersion": DataVersion().to_object(),
                "topicConfigTable": table,
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            }
            yield fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})

    def ext(self, host: str, body: bytes) -> dict[str, str]:
        fields = {
            **self.identity.ext(host),
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            "compressed": "false",
            "enableActingMaster": "true" if self.identity.acting_ms else "false",
            "haServerAddr": self.identity.ha_address(host),
        }
        if self.identity.acting_ms:
            fields["heartbeatTimeoutMillis"] = str(self.identity.acting_ms)
        return fields
