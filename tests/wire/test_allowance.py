"""How much may be on the way."""

from firearrow._native.wire.lane import Allowance


def test_an_allowance_counts_messages_and_bytes_but_lets_one_alone() -> None:
    freed: list[int] = []

    class Recording(Allowance):
        def freed(self) -> None:
            freed.append(self.count)

    allowance = Recording(2, 10)
    assert allowance.take(99)
    assert not allowance.take(1)
    allowance.give_back(99)
    assert [allowance.take(5), allowance.take(5), allowance.take(0)] == [True, True, False]
    allowance.give_back(5)
    assert [allowance.take(6), allowance.take(5)] == [False, True]
    allowance.crowded = True
    allowance.give_back(5)
    assert not allowance.take(1)
    assert freed == [0, 1]
