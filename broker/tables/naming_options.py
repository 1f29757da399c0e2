"""NamingOptions: the name server's options under Apache's keys. Loop thread.

Clients can change the options with an effect; a change lasts until the name server stops. docs/OPTIONS.md lists
`ACTING`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.config_keys import unknown
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.options import PROXIES_KEY, networks_of


class NamingOption(NamedTuple):
    """`low` and `high` bound a number; an option without them is a flag, unless it is `fixed`."""

    default: str
    meaning: str
    low: int | None = None
    high: int | None = None
    fixed: bool = False


ACTING = {
    "configBlackList": NamingOption(
        "configBlackList;configStorePath;kvConfigPath",
        "Keys, separated by `;`, that no client may change.",
        fixed=True,
    ),
    "deleteTopicWithBrokerRegistration": NamingOption(
        "false", "A registration removes topics of the broker that it does not name."
    ),
    "enableAllTopicList": NamingOption("true", "Answers requests for all topics."),
    "enableTopicList": NamingOption("true", "Answers requests for topics of a cluster or unit."),
    "needWaitForService": NamingOption("false", "Gives no routes until `waitSecondsForService` have passed."),
    "notifyMinBrokerIdChanged": NamingOption(
        "false", "Notifies the brokers of a name when their smallest id changes."
    ),
    "orderMessageEnable": NamingOption("false", "Adds a topic's order configuration to its route."),
    PROXIES_KEY: NamingOption(
        "",
        "As for the broker, whose own name server has the broker's.",
        fixed=True,
    ),
    "returnOrderTopicConfigToBroker": NamingOption(
        "true", "Answers registrations with the order configurations of all topics."
    ),
    "scanNotActiveBrokerInterval": NamingOption(
        "5000", "How often silent brokers are looked for.", 100, 3_600_000
    ),
    "supportActingMaster": NamingOption(
        "false",
        "In routes, the slave with the smallest id replaces a missing master (`enableSlaveActingMaster`).",
    ),
    "waitSecondsForService": NamingOption(
        "45",
        "Seconds of `needWaitForService`.",
        0,
        3600,
    ),
}
_WITHOUT_EFFECT = """
bindAddress=127.0.0.1
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
clusterTest=false
configStorePath=
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
enableControllerInNamesrv=false
enableShutdownGracefully=false
kvConfigPath=
listenPort=9876
productEnvName=center
rocketmqHome=
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverSocketBacklog=1024
serverSocketRcvBufSize=0
serverSocketSndBufSize=0
serverWorkerThreads=8
shutdownWaitTimeSeconds=30
unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false
writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
"""


class NamingOptions:
    """`overrides`: values that differ from the defaults. Refusal names a key or value that is not allowed."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self._values = dict(pair.split("=", 1) for pair in _WITHOUT_EFFECT.split())
        self._values |= {key: option.default for key, option in ACTING.items()}
        for key, text in (overrides or {}).items():
            self._values[self._known(key)] = self._checked(key, text)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def flag(self, key: str) -> bool:
        return self._values[key] == "true"

    def number(self, key: str) -> int:
        return int(self._values[key])

    def text(self) -> str:
        """All options as `key=value` lines, sorted by key; that which Apache lacks only if it is set."""
        shown = {key: value for key, value in self._values.items() if value or key != PROXIES_KEY}
        return "".join(f"{key}={value}\n" for key, value in sorted(shown.items()))

    def describe(self, pairs: Mapping[str, str]) -> None:
        """Set what the process knows of itself: its address, its files. These options have no effect."""
        self._values.update({self._known(key): text for key, text in pairs.items()})

    def update(self, pairs: Mapping[str, str]) -> None:
        """As `change`, for a client, which may not change the keys of `configBlackList` either."""
        if set(self._values["configBlackList"].split(";")) & pairs.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        self.change(pairs)

    def change(self, pairs: Mapping[str, str]) -> None:
        """Change all of these at run time, or none. Refusal names the key that may not change."""
        for key, text in pairs.items():
            current = self._values[self._known(key)]
            if (key not in ACTING or ACTING[key].fixed) and text != current:
                raise _wrong(f"{key} cannot change while the name server runs")
        checked = {key: self._checked(key, text) for key, text in pairs.items()}
        self._values.update(checked)

    def _known(self, key: str) -> str:
        if key not in self._values:
            raise _wrong(f"{unknown(key, self._values)} is not an option of the name server")
        return key

    def _checked(self, key: str, text: str) -> str:
        if key == "listenPort" and not (text.isascii() and text.isdigit() and int(text[:6]) < 65536):
            raise _wrong(f"{key} must be 0 to 65535, not {text[:64]!r}")
        if key == PROXIES_KEY:
            try:
                networks_of(key, text)
            except ValueError as error:
                raise _wrong(str(error)) from None
        option = ACTING.get(key)
        if option is None or option.fixed:
            return text
        low, high = option.low, option.high
        if low is None or high is None:
            if text not in ("true", "false"):
                raise _wrong(f"{key} must be true or false, not {text[:64]!r}")
        elif not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise _wrong(f"{key} must be {low} to {high}, not {text[:64]!r}")
        return text


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
