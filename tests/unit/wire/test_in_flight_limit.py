"""Limits of messages and bytes in flight."""

from firearrow._native.wire.fast_send import InFlightLimit


def test_the_limit_counts_messages_and_bytes_but_admits_a_single_one() -> None:
    freed: list[int] = []

    class Recording(InFlightLimit):
        def freed(self) -> None:
            freed.append(self.count)

    limit = Recording(2, 10)
    assert limit.try_acquire(99)
    assert not limit.try_acquire(1)
    limit.release(99)
    assert [limit.try_acquire(5), limit.try_acquire(5), limit.try_acquire(0)] == [True, True, False]
    limit.release(5)
    assert [limit.try_acquire(6), limit.try_acquire(5)] == [False, True]
    limit.crowded = True
    limit.release(5)
    assert not limit.try_acquire(1)
    assert freed == [0, 1]
