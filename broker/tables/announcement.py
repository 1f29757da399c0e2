"""What our broker says of itself to name servers: to its own as a value, to others as header and body.

Sends nothing. `BrokerAnnouncement` is a snapshot: taken on the loop, its bodies may be built in another thread.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from firearrow.broker.base import fastjson
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.names import PERM_READ, PERM_WRITE
from firearrow.broker.tables.registration import QueueData, Registration
from firearrow.broker.tables.topics import TopicConfig

PART_TOPICS = 20_000
"""Topics of one body: it stays far below a frame's limit."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """`host` empty: the address by which the asker reaches us. `bound`: the only one we listen on, if so."""

    cluster: str
    broker: str
    host: str
    port: int
    broker_id: int = 0
    bound: str = ""

    def address(self, host: str) -> str:
        """`host` is what to say if none is set; empty where each asker fills it in."""
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
        """Where Apache's broker would replicate; nothing listens there."""
        return replace(self, port=self.port + 1).address(host)


@dataclass(frozen=True, slots=True)
class BrokerAnnouncement:
    identity: BrokerIdentity
    version: DataVersion
    topics: Sequence[TopicConfig]

    @staticmethod
    def of(
        identity: BrokerIdentity, version: DataVersion, topics: Iterable[TopicConfig], permission: int
    ) -> "BrokerAnnouncement":
        """`permission` is brokerPermission: unless it is read and write, it narrows every topic's."""
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
            ha_address=identity.ha_address(""),
            version=self.version,
            topics={
                config.name: QueueData(config.read_queues, config.write_queues, config.perm, config.sys_flag)
                for config in self.topics
            },
            acting_master=False,
        )

    def bodies(self) -> Iterator[bytes]:
        """Bodies of REGISTER_BROKER, to be sent one after the other.

        A name server takes changes only under another version than it knows: each part has its own, the last
        the real one.
        """
        starts = range(0, max(len(self.topics), 1), PART_TOPICS)
        for left, start in zip(reversed(range(len(starts))), starts, strict=True):
            version = replace(self.version, timestamp=self.version.timestamp - left)
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
        return {
            **self.identity.ext(host),
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            "compressed": "false",
            "enableActingMaster": "false",
            "haServerAddr": self.identity.ha_address(host),
        }
