"""The settings FIREARROW, and the producer of the process that they describe.

    FIREARROW = {
        "NAME_SERVER": "127.0.0.1:9876",
        "PRODUCER_GROUP": "shop",
        "CLIENT": {"namespace": "test"},
        "PRODUCER": {"send_timeout_s": 5},
        "CONSUMER": {"threads": 8},
        "CONSUMERS": {"shop-mail": {"orderly": True}},
        "CHECKER": "firearrow.client.integrations.outbox.django.check",
    }

Each key is optional. CLIENT, PRODUCER and CONSUMER are fields of ClientOptions, ProducerOptions and
PushConsumerOptions; CONSUMERS has those of single groups. CHECKER names the function that answers the checks of the
producer's transactions.
"""

import os
import threading
from collections.abc import Mapping
from typing import Any

try:
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.utils.module_loading import import_string
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("django is missing: pip install 'firearrow[django]'", name="django") from error

from firearrow.client.base.options import ClientOptions, ProducerOptions, PushConsumerOptions
from firearrow.client.blocking import Producer

KEYS = {"NAME_SERVER", "PRODUCER_GROUP", "CLIENT", "PRODUCER", "CONSUMER", "CONSUMERS", "CHECKER"}
_making = threading.Lock()
_producers: dict[int, Producer] = {}
"""By process: a child that was forked needs one of its own."""


def configured() -> Mapping[str, Any]:
    """ImproperlyConfigured: an unknown key."""
    found: Mapping[str, Any] = getattr(settings, "FIREARROW", {})
    if unknown := found.keys() - KEYS:
        raise ImproperlyConfigured(
            f"FIREARROW: unknown {', '.join(sorted(unknown))}; there are {', '.join(sorted(KEYS))}"
        )
    return found


def client_options() -> ClientOptions:
    found = configured()
    given = {"name_server": found["NAME_SERVER"]} if "NAME_SERVER" in found else {}
    made: ClientOptions = _options(ClientOptions, "CLIENT", given | dict(found.get("CLIENT", {})))
    return made


def consumer_options(group: str) -> PushConsumerOptions:
    found = configured()
    given = dict(found.get("CONSUMER", {})) | dict(found.get("CONSUMERS", {}).get(group, {}))
    made: PushConsumerOptions = _options(PushConsumerOptions, f"CONSUMERS[{group!r}]", given)
    return made


def producer() -> Producer:
    """The producer of this process, started at the first use, closed when the process ends.

    It may be called before a fork: the child gets another one. ImproperlyConfigured, ClientError.
    """
    with _making:
        made = _producers.get(os.getpid())
        if made is None:
            made = _new_producer()
            made.start()
            _producers[os.getpid()] = made
        return made


def _new_producer() -> Producer:
    found = configured()
    if "PRODUCER_GROUP" not in found:
        raise ImproperlyConfigured("FIREARROW: PRODUCER_GROUP is missing, the group of the producer")
    return Producer(
        found["PRODUCER_GROUP"],
        options=_options(ProducerOptions, "PRODUCER", found.get("PRODUCER", {})),
        client=client_options(),
        checker=import_string(found["CHECKER"]) if "CHECKER" in found else None,
    )


def _options(kind: Any, key: str, given: Mapping[str, Any]) -> Any:
    try:
        return kind(**given)
    except TypeError as error:
        raise ImproperlyConfigured(f"FIREARROW: {key}: {error}") from None


if hasattr(os, "register_at_fork"):

    def _forked() -> None:
        global _making  # noqa: PLW0603 - another thread may hold the parent's
        _making = threading.Lock()

    os.register_at_fork(after_in_child=_forked)
