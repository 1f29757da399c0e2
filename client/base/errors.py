"""The errors of the client: one hierarchy, with the codes of Java's client and the remarks of brokers."""

import re
from typing import Any

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand


def error_text(error: BaseException) -> str:
    """Its text, also if `__str__`, which may be the program's, raises."""
    try:
        return str(error)
    except Exception:
        return "(its __str__ failed)"


class RocketMQError(Exception):
    """The base of all errors of the client. They can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Without a call of `__init__`, whose arguments are not those of Exception."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[RocketMQError], args: tuple[object, ...], attributes: dict[str, object]
) -> RocketMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ConfigError(RocketMQError, ValueError):
    """An option, a name or a subscription is invalid; the text names it and what is allowed."""


class NotRunning(RocketMQError):
    """The object was not started, failed to start, or is closed."""


class ClientError(RocketMQError):
    """A request failed. `code` is that of Java's MQClientException, or the broker's response code."""

    code = 10003

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class MessageRefused(ClientError, ValueError):
    """The message cannot be sent as it is; nothing was sent."""

    code = int(ResponseCode.MESSAGE_ILLEGAL)


class NoNameServer(ClientError):
    """No name server is configured."""

    code = 10004


class NoRoute(ClientError):
    """No name server has a route for the topic."""

    code = 10005


class InvalidReceiptHandle(ClientError, ValueError):
    """A receipt handle, or an offset string of a POP answer, cannot be read; the text names the field."""


class RequestReplyTimeout(ClientError):
    """The request was stored, but no reply arrived in time."""

    code = 10006


class NoReplyAddress(ClientError):
    """The message is not a request, so no reply can be sent."""

    code = 10007


class TooManyRequests(ClientError):
    """The limit of requests in flight is reached, or no time is left to send another request."""


class TransportError(ClientError):
    """The connection failed; the broker may or may not have received the request."""


class ConnectFailed(TransportError):
    """No connection could be opened; the broker has not received the request."""

    code = 10001


class ConnectionLost(TransportError):
    """The connection closed before the answer arrived."""

    code = 10001


class RequestTimeout(TransportError):
    """No answer arrived in time. The connection stays open, unless nothing else came on it either."""

    code = 10002


class BrokerError(ClientError):
    """A broker or name server answered with an error: `code` and `remark` are those of the response. Of a refused login
    or a missing right, the text also states what to do."""

    def __init__(self, code: int, remark: str, broker: str) -> None:
        hint = access_hint(code, remark)
        super().__init__(f"{broker}: {code} {code_name(code)}: {remark}{f' ({hint})' if hint else ''}", code)
        self.remark = remark
        self.broker = broker


class OnlyFireArrow(ClientError):
    """The request is one that only FireArrow's broker answers."""

    code = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def __init__(self, broker: str) -> None:
        super().__init__(f"{broker}: Apache's broker does not answer this; only FireArrow's does")
        self.broker = broker


class OffsetUnknown(RocketMQError):
    """The stored offset could not be read; one may exist."""


_NO_KEYS = (
    "the broker requires a login: pass credentials=Credentials(access_key, secret_key); "
    "for commands: firearrow context add NAME --access-key KEY"
)
_WRONG_KEY = "the secret key is not that of this user, or a proxy changed the request"
_HINTS = (
    (r"username cannot be null\.", _NO_KEYS),
    (r"No accessKey is configured", _NO_KEYS),
    (r"check signature failed\.", _WRONG_KEY),
    (r"Check signature failed for accessKey=", _WRONG_KEY),
    (r"User:(?P<user>\S+) is not found\.", "add the user: firearrow user add {user}"),
    (r"No acl config for (?P<user>\S+)", "add the account {user} to plain_acl.yml"),
    (
        r"User:(?P<user>\S+) has no permission to access (?P<resource>\S+) from \S+, no matched",
        "grant it: firearrow user grant {user} {resource} Pub,Sub,Get, or the actions that it needs",
    ),
    (
        r"User:(?P<user>\S+) has no permission to access (?P<resource>\S+) from \S+, the decision is deny",
        "a rule denies it: firearrow user list {user}",
    ),
    (
        r"No default permission for (?P<kind>topic|group):(?P<name>\S+)",
        "add {name}=PUB|SUB to the {kind}Perms of the account in plain_acl.yml",
    ),
    (
        r"The broker does not support consumer to filter message by SQL92",
        "switch it on: firearrow config set enablePropertyFilter=true",
    ),
    (
        r" *request type 30(0[1-9]|10) not supported",
        "the broker has no users: start it with authenticationEnabled=true",
    ),
)
NO_PERMISSION, SYSTEM_ERROR, REQUEST_CODE_NOT_SUPPORTED = 16, 1, 3
"""Codes of refused requests: of brokers from 5.3 on, with the ACL of 4.x or without a feature, and without users."""
ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


def access_hint(code: int, remark: str) -> str:
    """What is missing for a request that was refused for its login, its rights or an option; "" for other errors."""
    if code not in (NO_PERMISSION, SYSTEM_ERROR, REQUEST_CODE_NOT_SUPPORTED):
        return ""
    text = remark[:1024].removeprefix(ACL_EXCEPTION)
    for pattern, hint in _HINTS:
        if found := re.match(pattern, text):
            return hint.format(**found.groupdict())
    return ""


def code_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode._value2member_map_ else "?"


def check(answer: RemotingCommand, broker: str) -> RemotingCommand:
    """Return the answer if it is a success. BrokerError."""
    if answer.code != 0:
        raise BrokerError(answer.code, answer.remark or "", broker)
    return answer
