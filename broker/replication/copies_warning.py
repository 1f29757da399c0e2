"""CopiesWarning: a line in the log for values of inSyncReplicas and minInSyncReplicas that do not do what they seem to.

Apache takes them without a word.
"""

import logging

from firearrow.broker.base.options import Options

log = logging.getLogger("firearrow.replication")


class CopiesWarning:
    """`look` with the options at the start and after each change: the same is not said twice."""

    def __init__(self) -> None:
        self._said = ""

    def look(self, options: Options) -> None:
        text = fault_of(options)
        if text and text != self._said:
            log.warning("%s", text)
        self._said = text


def fault_of(options: Options) -> str:
    """Empty: none, or it is a slave, which waits for nobody."""
    wanted, least = options.in_sync_replicas, options.min_in_sync_replicas
    if options.is_slave or options.all_acknowledge:
        return ""
    if options.broker_role != "SYNC_MASTER":
        values = (("inSyncReplicas", wanted), ("minInSyncReplicas", least))
        idle = " and ".join(f"{key}={value}" for key, value in values if value > 1)
        verb = "have" if " and " in idle else "has"
        return idle and (
            f"{idle} {verb} no effect with brokerRole=ASYNC_MASTER, which waits for no slave: set "
            "brokerRole=SYNC_MASTER"
        )
    if least > wanted:
        waits = wanted if options.controller_mode else least
        copies = "no slave" if waits == 1 else f"{waits} copies"
        slaves = "without a slave" if least == 2 else f"with fewer than {least - 1} slaves"
        return (
            f"minInSyncReplicas={least} is above inSyncReplicas={wanted}: sends wait for {copies}, and are refused "
            f"while fewer than {least} copies are in sync, which is for ever {slaves}: set inSyncReplicas={least}, or "
            f"minInSyncReplicas={wanted}"
        )
    if wanted == 1:
        return "brokerRole=SYNC_MASTER waits for no slave while inSyncReplicas is 1, Apache's default: set it to 2"
    return ""
