"""Handshake of FireArrow's wire: who the two brokers are, what their logs are, and that both know the shared secret.
Pure.

```
slave → master   magic 8 · HELLO    version u16 · summary · nonce 32
master → slave   magic 8 · ANSWER   version u16 · summary · common point i64 · nonce 32 · proof, 0 or 32 bytes
slave → master   PROOF              proof, 0 or 32 bytes
either           REFUSAL            code u16 · text
summary          pair 16 · node 16 · epoch i32 · first, end, flushed i64
                 · count u16, for each epoch: number i32 · start i64
                 · start of the chain i64 · count u16, for each MiB: CRC-32C u32
                 · from version 2 on: role u8 · broker id i64 · length u8 · address
```

A slave sends the latest version that the master knows (firearrowPairLatest of 906), and a master answers with the
version that it was sent: brokers of any version follow each other. Role and place, of version 2: what the slave becomes
by a promotion, and under which number and address a broker is known to operators. From version 3 on a master sends the
table RECEIPT_HANDLES.

On Apache's replication port: a slave of Apache begins with an i64 that is not negative, the magic number is.

A proof is HMAC-SHA256 with the shared secret over the role of its sender, the bytes of HELLO and those of ANSWER before
its proof: both summaries are covered, and no proof can be sent back or again. A master acts on the summary of a HELLO,
and a slave is sent the log, only after the PROOF. Without a secret on both sides there are no proofs; `secret_fault`
permits that only on the loopback interface. Frames have a CRC, which does not stop an attacker: between machines use
TLS.
"""

import hashlib
import hmac
import ipaddress
import os
import struct
from enum import IntEnum
from typing import NamedTuple

from firearrow.broker.base.options import HA_SECRET_BYTES_MIN
from firearrow.broker.replication.log.epoch_file import EPOCHS_MAX, Epoch, checked
from firearrow.broker.replication.log.pair_identity import ASYNC_MASTER, ID_BYTES, NO_ID, SYNC_MASTER
from firearrow.broker.replication.wires.firearrow.frames import Frame, FrameError, Kind, frame

MAGIC = b"\xf1FAPAIR\x01"
VERSION, LATEST = 1, 3
WITH_RECEIPTS = 3
UNASKED = 2
"""What a master gets that cannot be asked: those before version 3 know it as well."""
VERSION_MEMBER, LATEST_MEMBER = "firearrowPairVersion", "firearrowPairLatest"
"""Of the answer to EXCHANGE_BROKER_HA_INFO: our masters report which versions of FireArrow's wire they speak, the
oldest and the latest. Earlier FireArrows report only the first, and as slaves know no other."""
NONCE_BYTES = 32
PROOF_BYTES = 32
ADDRESS_BYTES_MAX = 255
CHAIN_MAX = 64
"""Most MiBs whose checksums are sent."""
TEXT_BYTES_MAX = 1024
ROLES = "", ASYNC_MASTER, SYNC_MASTER, "SLAVE"
"""By their numbers."""
ASK_FOR_CHECKSUMS = -1
"""As a common point: the slave has to search it (broker/replication/log/common_point)."""
MASTER, SLAVE = b"FireArrow pair, master", b"FireArrow pair, slave"
VERSION_AT, FIXED, COUNT = struct.Struct(">H"), struct.Struct(">16s16siqqq"), struct.Struct(">H")
EPOCH, OFFSET, MEMBER = struct.Struct(">iq"), struct.Struct(">q"), struct.Struct(">BqB")


class RefusalCode(IntEnum):
    """Why the other broker is refused; the text states it in words."""

    OTHER = 0
    VERSION = 1
    SECRET = 2
    PAIR = 3
    SAME_NODE = 4
    NOT_MASTER = 5
    OLD_EPOCH = 6
    DIVERGED = 7
    BEHIND = 8


class Refused(Exception):
    """One broker refuses the other."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Member(NamedTuple):
    """A broker as a member of its brokerName. `address`: as it registers, `host:port`, or `:port` if its host is the
    one that it connects from."""

    role: str
    broker_id: int
    address: str


def member_of(role: str, broker_id: int, address: str) -> Member:
    """Without an address that a handshake cannot have."""
    fits = address.isascii() and address.isprintable() and len(address) <= ADDRESS_BYTES_MAX
    return Member(role, broker_id, address if fits else "")


class LogSummary(NamedTuple):
    """Of a broker and its log, which has `first` to `end`. `chain`: checksums of the log from `chain_start`, a whole
    MiB, to each later one and to `end` (LogChecksums.chained); empty: none. `member` None: it is not known, as in
    version 1. `version`: of the greeting that has it."""

    pair: bytes
    node: bytes
    epoch: int
    first: int
    end: int
    flushed: int
    epochs: tuple[Epoch, ...]
    chain_start: int
    chain: tuple[int, ...]
    member: Member | None = None
    version: int = LATEST


class Answer(NamedTuple):
    summary: LogSummary
    common_point: int


def secret_fault(secret: bytes, host: str, *, option: str) -> str:
    """Why a broker at this address may not be spoken to with this secret (empty: none); empty if it may. `option`
    names the setting of the secret."""
    if secret and len(secret) < HA_SECRET_BYTES_MIN:
        return f"the shared secret has {len(secret)} bytes: set {option} to at least {HA_SECRET_BYTES_MIN}"
    if secret or ipaddress.ip_address(host).is_loopback:
        return ""
    return f"the brokers have no secret: set {option} to the same secret on both brokers"


class SlaveHandshake:
    """`hello`, then `answered`, then `proof` are to be called. The secret may be empty."""

    def __init__(self, secret: bytes, summary: LogSummary) -> None:
        self._secret = secret
        self._hello = _greeting(summary) + os.urandom(NONCE_BYTES)
        self._answer = b""

    def hello(self) -> bytes:
        """What to send first."""
        return MAGIC + frame(Kind.HELLO, self._hello)

    def answered(self, received: Frame) -> Answer:
        """The master's answer, which knows the secret. Refused: by it, or by us; FrameError."""
        _raise_refusal(received)
        reader = _Reader(received.body)
        summary, (common_point,) = reader.summary(), reader.take(OFFSET)
        reader.skip(NONCE_BYTES)
        self._answer = received.body[: reader.at]
        _check_proof(self._secret, MASTER, self._hello + self._answer, received.body[reader.at :])
        if not ASK_FOR_CHECKSUMS <= common_point <= summary.end:
            raise FrameError(f"the common point {common_point} is outside the master's log")
        return Answer(summary, common_point)

    def proof(self) -> bytes:
        """What to send after the answer."""
        return frame(Kind.PROOF, _proof(self._secret, SLAVE, self._hello + self._answer))


class MasterHandshake:
    """`greeted`, then `answer`, then `proved` are to be called. The secret may be empty."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._hello = self._answer = b""
        self._version = VERSION

    def greeted(self, received: Frame) -> LogSummary:
        """The slave's summary, not proved yet. Refused, FrameError."""
        reader = _Reader(received.body)
        summary = reader.summary()
        reader.skip(NONCE_BYTES)
        reader.end()
        self._hello = received.body
        self._version = summary.version
        return summary

    def answer(self, summary: LogSummary, common_point: int) -> bytes:
        """What to send, in the slave's version."""
        self._answer = (
            _greeting(of_version(summary, self._version))
            + OFFSET.pack(common_point)
            + os.urandom(NONCE_BYTES)
        )
        body = self._answer + _proof(self._secret, MASTER, self._hello + self._answer)
        return MAGIC + frame(Kind.ANSWER, body)

    def proved(self, received: Frame) -> None:
        """Refused: by the slave, or because it does not know the secret."""
        _raise_refusal(received)
        _check_proof(self._secret, SLAVE, self._hello + self._answer, received.body)


def refusal(code: int, text: str) -> bytes:
    """What to send before the connection is closed; a master sends `MAGIC` before it if it has not answered yet."""
    cut = text.encode()[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return frame(Kind.REFUSAL, VERSION_AT.pack(code) + cut.encode())


def refused(body: bytes) -> Refused:
    """The other broker's refusal. FrameError."""
    if not VERSION_AT.size <= len(body) <= VERSION_AT.size + TEXT_BYTES_MAX:
        raise FrameError(f"a refusal of {len(body)} bytes")
    text = body[VERSION_AT.size :].decode("utf-8", "replace")
    return Refused(VERSION_AT.unpack_from(body)[0], f"the other broker refuses: {text}")


def _raise_refusal(received: Frame) -> None:
    if received.kind is Kind.REFUSAL:
        raise refused(received.body)


def of_version(summary: LogSummary, version: int) -> LogSummary:
    """What a greeting of this version can say."""
    return summary._replace(version=version, member=None if version == VERSION else summary.member)


def _greeting(summary: LogSummary) -> bytes:
    """ValueError: too many epochs or checksums."""
    if len(summary.epochs) > EPOCHS_MAX or len(summary.chain) > CHAIN_MAX:
        raise ValueError(f"{len(summary.epochs)} epochs and {len(summary.chain)} checksums are too many")
    numbers = FIXED.pack(
        summary.pair, summary.node, summary.epoch, summary.first, summary.end, summary.flushed
    )
    epochs = [EPOCH.pack(*epoch) for epoch in summary.epochs]
    chain = struct.pack(f">{len(summary.chain)}I", *summary.chain)
    counts = COUNT.pack(len(epochs)), COUNT.pack(len(summary.chain))
    return b"".join(
        (
            VERSION_AT.pack(VERSION if summary.member is None else summary.version),
            numbers,
            counts[0],
            *epochs,
            OFFSET.pack(summary.chain_start),
            counts[1],
            chain,
            b"" if summary.member is None else _packed(summary.member),
        )
    )


def _packed(member: Member) -> bytes:
    """ValueError: its address is too long."""
    address = member.address.encode()
    if len(address) > ADDRESS_BYTES_MAX:
        raise ValueError(f"the address {member.address[:80]!r} has {len(address)} bytes")
    return MEMBER.pack(ROLES.index(member.role), member.broker_id, len(address)) + address


def _proof(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    """Empty without a secret."""
    return hmac.new(secret, role + MAGIC + transcript, hashlib.sha256).digest() if secret else b""


def _check_proof(secret: bytes, role: bytes, transcript: bytes, proof: bytes) -> None:
    if hmac.compare_digest(proof, _proof(secret, role, transcript)):
        return
    if secret and proof:
        why = "the secrets of the two brokers differ"
    else:
        why = f"only {'this' if secret else 'the other'} broker has a secret"
    raise Refused(RefusalCode.SECRET, f"{why}: set the same one on both")


class _Reader:
    """Reads a greeting. FrameError: it is too short, too long, or inconsistent. Refused: another version."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0
        (self._version,) = self.take(VERSION_AT)
        if not VERSION <= self._version <= LATEST:
            raise Refused(
                RefusalCode.VERSION,
                f"the other broker speaks version {self._version} of FireArrow's wire, this one {VERSION} to {LATEST}: "
                "install the same FireArrow",
            )

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        start = self.skip(form.size)
        return form.unpack_from(self._body, start)

    def skip(self, length: int) -> int:
        """The position before it."""
        start = self.at
        if start + length > len(self._body):
            raise FrameError(f"a greeting of {len(self._body)} bytes is too short")
        self.at = start + length
        return start

    def end(self) -> None:
        if self.at != len(self._body):
            raise FrameError(f"a greeting has {len(self._body) - self.at} bytes too many")

    def summary(self) -> LogSummary:
        pair, node, epoch, first, end, flushed = FIXED.unpack_from(self._body, self.skip(FIXED.size))
        epochs = self._epochs()
        (chain_start,), (count,) = self.take(OFFSET), self.take(COUNT)
        if count > CHAIN_MAX:
            raise FrameError(f"{count} checksums, at most {CHAIN_MAX}")
        chain = self.take(struct.Struct(f">{count}I"))
        if epoch < 0 or not 0 <= first <= end or not 0 <= flushed <= end or not 0 <= chain_start <= end:
            raise FrameError(f"a log from {first} to {end}, flushed to {flushed}, is inconsistent")
        if node == NO_ID or len(node) != ID_BYTES:
            raise FrameError("a broker without an id")
        member = None if self._version == VERSION else self._member()
        return LogSummary(
            pair, node, epoch, first, end, flushed, epochs, chain_start, chain, member, self._version
        )

    def _member(self) -> Member:
        role, broker_id, length = self.take(MEMBER)
        start = self.skip(length)
        address = self._body[start : self.at].decode("latin-1")
        if role >= len(ROLES) or broker_id < 0 or not (address.isascii() and address.isprintable()):
            raise FrameError(
                f"a member with role {role}, id {broker_id} and address {address[:80]!r} is inconsistent"
            )
        return Member(ROLES[role], broker_id, address)

    def _epochs(self) -> tuple[Epoch, ...]:
        (count,) = self.take(COUNT)
        if count > EPOCHS_MAX:
            raise FrameError(f"{count} epochs, at most {EPOCHS_MAX}")
        try:
            return checked(Epoch(*self.take(EPOCH)) for _ in range(count))
        except FrameError:
            raise
        except ValueError as error:
            raise FrameError(str(error)) from None
