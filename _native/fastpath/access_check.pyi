from collections.abc import Callable

from firearrow._native.fastpath.fast_connection import FastConnection

SHA1_WAYS: int
"""Number of SHA-1 implementations that this processor supports; 0 works everywhere, higher ones are faster."""

class AccessCheck:
    """Checks plain sends and pulls of users that have logged in.

    `allows(user, topic, group, host)`: whether the user may pull the topic for the group, or send to the topic if
    there is no group; `host`: the peer's address as in records. `each`: each signature is checked; else only until
    the login ends.
    """

    def __init__(
        self, allows: Callable[[str, str, str | None, bytes], bool], *, authorization: bool, each: bool
    ) -> None: ...
    def log_in(self, connection: FastConnection, name: str, password: str, until: float) -> None:
        """The complete path has let a request of the user through. `until`: time of the loop, in s."""
    def forget(self) -> None:
        """Users or rules changed: every connection has to log in again."""

def hmac_sha1(secret: bytes, parts: list[bytes], way: int | None = None) -> bytes:
    """Base64 of the HMAC-SHA1 of the parts. `way`: implementation, None: the fastest."""
