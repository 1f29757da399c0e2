from collections.abc import Mapping

class FieldError(ValueError):
    """An ext field is missing or malformed; the message names it."""

class WireError(ValueError):
    """A frame or header cannot be read; the frame boundary may be lost."""

class RemotingCommand:
    """One request or response. `opaque`: its number on the connection; `ext`: its custom header, all values
    are str."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: dict[str, str]
    body: bytes
    serializer: int
    since_ns: int
    """When the request was read (monotonic); 0: its latency is not measured."""
    asked: int
    """Of an answer: the code of its request."""
    held: bool
    """The request waited for messages."""
    user: str | None
    """Who sent it, verified; None: not signed, or not known."""
    secret: str | None
    """The password with which its signature was verified; None: it was not verified."""
    def __init__(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        opaque: int = 0,
        flag: int = 0,
        language: int = ...,
        version: int = ...,
        serializer: int = 0,
    ) -> None: ...
    @property
    def is_response(self) -> bool: ...
    @property
    def is_oneway(self) -> bool: ...
    @staticmethod
    def request(
        code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *, oneway: bool = False
    ) -> RemotingCommand: ...
    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """A response to this request: same opaque and serializer, response flag set."""
    @staticmethod
    def decode(frame: bytes) -> RemotingCommand:
        """Decode one complete frame, length word included. WireError."""
    def encode(self) -> bytes:
        """The complete frame, length word included. ValueError: a part is over its limit."""
    def text(self, name: str) -> str: ...
    def text_or(self, name: str, default: str) -> str: ...
    def integer(self, name: str, bits: int = 64) -> int: ...
    def integer_or(self, name: str, default: int, bits: int = 64) -> int: ...
    def boolean_or(self, name: str, default: bool) -> bool: ...
