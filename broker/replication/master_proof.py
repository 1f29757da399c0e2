"""MasterProof: whether a broker that a name server reports as our master knows haSecret, and of which epoch it is.

Whoever may register at a name server may register our brokerName. So the broker is asked for its replication port (906)
and greeted there as by a slave with an empty log; its answer proves all that it reports (pair_handshake). Without
haSecret the name server is believed. Loop thread.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.replication.pair_client import connected_stream
from firearrow.broker.replication.pair_frames import FrameError
from firearrow.broker.replication.pair_handshake import Facts, Refused, SlaveHandshake
from firearrow.broker.replication.pair_identity import NO_ID, PairIdentity
from firearrow.broker.replication.slave_master import Master, MasterError, address_or_none
from firearrow.broker.services.registration import Connect

log = logging.getLogger("firearrow.replication")

PROOF_S = 2.5
"""Less than a master waits for the first look at name servers."""
WARNED_MAX = 64


class MasterProof:
    """`identity()`: of our store; `end()`: of its log. `tls()`: the context of connections to others; None: plain."""

    def __init__(
        self,
        secret: bytes,
        identity: Callable[[], PairIdentity],
        end: Callable[[], int],
        connect: Connect,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._secret = secret
        self._identity = identity
        self._end = end
        self._connect = connect
        self._tls = tls
        self._warned: set[str] = set()

    @property
    def is_needed(self) -> bool:
        return bool(self._secret)

    async def epoch_of(self, address: str, claimed: int) -> int | None:
        """The epoch of the broker at this address, at most `claimed`, the name server's; None: it proves nothing."""
        if not self._secret:
            return claimed
        try:
            async with asyncio.timeout(PROOF_S):
                facts = await self._facts(address)
        except TimeoutError:
            why = f"it does not answer within {PROOF_S} s"
        except (OSError, MasterError, FrameError, Refused, ValueError) as error:
            why = str(error) or type(error).__name__
        else:
            self._warned.discard(address)
            return min(facts.epoch, claimed)
        if address not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(address)
            log.warning(
                "a name server reports %s as the master of our brokerName, but that has not proved that it knows "
                "haSecret (%s): it is ignored; find out what it is",
                address[:80],
                why,
            )
        return None

    async def _facts(self, address: str) -> Facts:
        """Proved. OSError, MasterError, FrameError, Refused, ValueError."""
        identity = self._identity()
        if identity.pair == NO_ID and self._end() > 0:
            raise ValueError("no slave has joined this broker, so none can have been promoted")
        host, port = await self._replication_address(address)
        facts = Facts(identity.pair, identity.node, 0, 0, 0, 0, (), 0, ())
        handshake = SlaveHandshake(self._secret, facts)
        stream = await connected_stream(host, port, self._tls())
        try:
            stream.write(handshake.hello())
            theirs = handshake.answered(await stream.frame()).facts
        finally:
            stream.finish()
        if theirs.node == identity.node:
            raise ValueError("it is this broker, or has a copy of its store")
        return theirs

    async def _replication_address(self, address: str) -> tuple[str, int]:
        at = address_or_none(address)
        if at is None:
            raise ValueError("this is no address")
        master = Master(self._connect, "")
        master.offered(at, at)
        try:
            answer = await master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        finally:
            master.close()
        found = address_or_none(answer.ext.get("masterHaAddress", ""), at[0])
        if found is None:
            raise ValueError("it does not replicate")
        return found
