"""MasterWatch: asks name servers whether another broker is a master of our brokerName, with a newer epoch or ours.

A name server prefers the registration with the larger stateVersion, which is the epoch here, and ignores the other one
without a word: so a master asks after each registration who has id 0. Of two with the same epoch, as two slaves are
that were promoted while no name server was there, it shows the one that registered last, so they take turns: each
states so, and an operator has to choose, for each may have taken messages. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.json_fields import members, members_or_none
from firearrow.broker.tables.registration import BrokerIdentity
from firearrow.broker.tables.routes import MASTER_ID

log = logging.getLogger("firearrow.replication")

ANSWER_S = 10.0
FORGET_S = 150.0
"""A second master that no name server has shown for so long no longer exists: each registers once a minute at least."""


class MasterWatch:
    """`epoch()`: ours. `outdated(epoch, by)`: another broker is the master since that epoch."""

    def __init__(
        self, identity: BrokerIdentity, epoch: Callable[[], int], outdated: Callable[[int, str], None]
    ) -> None:
        self._identity = identity
        self._epoch = epoch
        self._outdated = outdated
        self._other = ""
        self._other_at = 0.0

    @property
    def other_master(self) -> str:
        """Address of another master with our epoch; empty: none is known."""
        if self._other and asyncio.get_running_loop().time() - self._other_at >= FORGET_S:
            self._other = ""
        return self._other

    async def check(self, name_server: Peer, our_address: str) -> None:
        """After a registration there."""
        try:
            holder = await self._holder(name_server)
            if holder in ("", our_address):
                return
            epoch = (await self._version(name_server, holder)).state_version
        except (OSError, ValueError) as error:
            return log.info("a name server did not report the master, will ask again: %s", error)
        if self._epoch() < epoch:
            self._outdated(epoch, holder)
        elif epoch == self._epoch():
            self._is_shared(holder, our_address)
        return None

    def _is_shared(self, holder: str, our_address: str) -> None:
        if self.other_master != holder:
            log.error(
                "%s and this broker, %s, are both masters of %s with epoch %d, and take different messages: stop one "
                "of the two, and start it with brokerRole=SLAVE and an empty store; keep its old store until you have "
                "what it alone has",
                holder,
                our_address,
                self._identity.broker,
                self._epoch(),
            )
        self._other, self._other_at = holder, asyncio.get_running_loop().time()

    async def _holder(self, name_server: Peer) -> str:
        """Address of the broker that is registered as our master; empty: none is."""
        body = fastjson.loads(await _ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO, {}))
        brokers = members_or_none(members(body, "the cluster info").get("brokerAddrTable"), "brokerAddrTable")
        broker = members_or_none(brokers.get(self._identity.broker), self._identity.broker)
        ids = members_or_none(broker.get("brokerAddrs"), "brokerAddrs")
        return str(ids.get(MASTER_ID, ids.get(str(MASTER_ID), "")))

    async def _version(self, name_server: Peer, address: str) -> DataVersion:
        ext = {
            "brokerAddr": address,
            "brokerId": str(MASTER_ID),
            "brokerName": self._identity.broker,
            "clusterName": self._identity.cluster,
        }
        ours = fastjson.dumps(DataVersion().to_object())
        body = await _ask(name_server, RequestCode.QUERY_DATA_VERSION, ext, ours)
        return DataVersion.from_object(fastjson.loads(body)) if body else DataVersion()


async def _ask(name_server: Peer, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    """OSError, ValueError."""
    answer = await name_server.ask(RemotingCommand.request(code, ext, body), ANSWER_S)
    if answer.code != ResponseCode.SUCCESS:
        raise ValueError(f"it refused request {code} with {answer.code}: {answer.remark}")
    return answer.body
