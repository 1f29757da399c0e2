"""Every target for a moment, with a fixed seed; earlier findings are read first. The long form is a command."""

import random

import pytest

from tests.hostile import fuzz
from tests.hostile.fuzz import CORPUS, Found, Target
from tests.hostile.mutation import BYTES_MAX, mutated
from tests.hostile.targets import TARGETS

SECONDS, SEED = 0.15, 8


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str) -> None:
    tried, _ = fuzz.run(TARGETS[name], SECONDS, SEED)
    assert tried > 0


def test_the_corpus_belongs_to_targets() -> None:
    assert {path.parent.name for path in CORPUS.glob("*/*.bin")} <= set(TARGETS)


def test_mutations_are_reproducible() -> None:
    once, again = random.Random(5), random.Random(5)
    seeds = [b"some bytes that are right", b"others"]
    for _ in range(500):
        data = mutated(once, seeds[0], seeds)
        assert data == mutated(again, seeds[0], seeds)
        assert len(data) <= BYTES_MAX


def broken(data: bytes) -> None:
    if len(data) > 10:
        raise KeyError(data[0])


def test_a_parser_s_failure_is_found_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path_factory.mktemp("corpus"))
    target = Target("broken", lambda: [b"right"], broken)
    with pytest.raises(Found, match="raised KeyError"):
        fuzz.run(target, 10, 1)
    (kept,) = fuzz.kept("broken")
    assert len(kept) > 10
    with pytest.raises(Found, match="raised KeyError"):  # kept inputs come first
        fuzz.run(target, 0, 1)


def test_a_slow_parser_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path_factory.mktemp("corpus"))
    monkeypatch.setattr(fuzz, "SLOW_S", -1.0)
    with pytest.raises(Found, match="took"):
        fuzz.run(Target("slow", lambda: [b"right"], len), 0, 1)


def test_valid_bytes_must_be_accepted() -> None:
    with pytest.raises(Found, match="refuses what is right"):
        fuzz.run(Target("refusing", lambda: [b"x"], int), 0, 1)
