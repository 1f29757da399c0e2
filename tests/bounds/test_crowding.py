"""Who goes when connections are too many or hold too much."""

import resource
from dataclasses import dataclass

from firearrow.broker.crowding import RESERVED_MAX, connections_max, heaviest, silent


@dataclass
class One:
    held: int = 0
    received_frames: int = 0
    last_seen: float = 0.0


def test_descriptors_are_left_for_the_store() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = connections_max()
    raised, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised >= soft
    assert hard in (raised, resource.RLIM_INFINITY) or raised == 1 << 20
    assert raised - most == min(raised // 4, RESERVED_MAX)


def test_the_heaviest_go_until_it_is_enough() -> None:
    crowd = [One(5), One(50), One(20), One(0)]
    assert heaviest(crowd, 0) == []
    assert heaviest(crowd, 50) == [crowd[1]]
    assert heaviest(crowd, 51) == [crowd[1], crowd[2]]
    assert heaviest(crowd, 1000) == [crowd[1], crowd[2], crowd[0]]


def test_the_silent_are_those_that_never_spoke() -> None:
    crowd = [One(last_seen=1.0), One(last_seen=5.0), One(received_frames=1, last_seen=1.0)]
    assert silent(crowd, 5.0) == [crowd[0]]
