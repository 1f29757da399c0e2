"""RecordClient: a TLS client that sends records which no library sends, such as thousands of key updates."""

import hmac
import socket
import ssl
import struct
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALERT, HANDSHAKE, DATA = 21, 22, 23
KEY_UPDATE = bytes([24, 0, 0, 1, 1])
"""update_requested: the peer has to answer with one of its own."""
HELLO = bytes([1, 0, 0, 38, 3, 3]) + bytes(36)
"""A client's wish to renegotiate."""
TICKET = bytes([4, 0, 0, 0])
"""NewSessionTicket, which only servers send."""
WARNING = bytes([1, 90])
"""user_canceled."""
KEY_BYTES, IV_BYTES = 16, 12
RANDOM_AT = 11
"""In a ServerHello's record."""


class RecordClient:
    """A client with AES-GCM whose handshake with `address` is complete; `record` encrypts for it."""

    def __init__(self, context: ssl.SSLContext, address: tuple[str, int]) -> None:
        self.is_1_2 = context.maximum_version == ssl.TLSVersion.TLSv1_2
        if self.is_1_2:
            context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.socket = socket.create_connection(address, 10)
        self.seen = b""
        with tempfile.NamedTemporaryFile() as keys:
            context.keylog_filename = keys.name
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
            self._handshake()
            lines = [line.split() for line in Path(keys.name).read_text().splitlines()]
        secrets = {
            line[0]: (bytes.fromhex(line[1]), bytes.fromhex(line[2])) for line in lines if len(line) == 3
        }
        cipher = self.tls.cipher()
        assert cipher is not None
        self.hash = "sha384" if cipher[0].endswith("SHA384") else "sha256"
        self.key_bytes = cipher[2] // 8
        if self.is_1_2:
            self._use_master(*secrets["CLIENT_RANDOM"])
        else:
            self.secret = secrets["CLIENT_TRAFFIC_SECRET_0"][1]
            self._use_secret()

    def _handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(self.outgoing.read())
                got = self.socket.recv(1 << 16)
                assert got, "closed by the server"
                self.seen += got
                self.incoming.write(got)
            else:
                return self.socket.sendall(self.outgoing.read())

    def _use_master(self, client_random: bytes, master: bytes) -> None:
        """TLS 1.2's key block: both sides' keys, then their fixed parts of the nonce. Finished was record 0."""
        seed = b"key expansion" + self.seen[RANDOM_AT : RANDOM_AT + 32] + client_random
        block, at = b"", seed
        while len(block) < 2 * KEY_BYTES + 8:
            at = hmac.digest(master, at, "sha256")
            block += hmac.digest(master, at + seed, "sha256")
        self.cipher, self.iv, self.number = AESGCM(block[:KEY_BYTES]), block[2 * KEY_BYTES :][:4], 1

    def _use_secret(self) -> None:
        self.cipher = AESGCM(self._expanded(b"key", self.key_bytes))
        self.iv, self.number = self._expanded(b"iv", IV_BYTES), 0

    def _expanded(self, label: bytes, length: int) -> bytes:
        """HKDF-Expand-Label of the secret without a context, of one block."""
        name = b"tls13 " + label
        info = struct.pack(">HB", length, len(name)) + name + b"\0"
        return hmac.digest(self.secret, info + b"\1", self.hash)[:length]

    def record(self, kind: int, content: bytes) -> bytes:
        number, self.number = self.number, self.number + 1
        if self.is_1_2:
            nonce = struct.pack(">Q", number)
            more = nonce + struct.pack(">BHH", kind, 0x0303, len(content))
            sealed = nonce + self.cipher.encrypt(self.iv + nonce, content, more)
            return struct.pack(">BHH", kind, 0x0303, len(sealed)) + sealed
        nonce = (int.from_bytes(self.iv, "big") ^ number).to_bytes(IV_BYTES, "big")
        head = struct.pack(">BHH", DATA, 0x0303, len(content) + 17)
        return head + self.cipher.encrypt(nonce, content + bytes([kind]), head)

    def key_update(self) -> bytes:
        """A record, after which the keys are others."""
        made = self.record(HANDSHAKE, KEY_UPDATE)
        self.secret = self._expanded(b"traffic upd", len(self.secret))
        self._use_secret()
        return made

    def receive(self) -> bytes:
        """Plaintext of the server; b"": it closed the connection."""
        while True:
            try:
                return self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                got = self.socket.recv(1 << 16)
                if not got:
                    return b""
                self.incoming.write(got)

    def closed_by_peer(self, within_s: float = 10) -> bool:
        self.socket.settimeout(within_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def __enter__(self) -> "RecordClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
