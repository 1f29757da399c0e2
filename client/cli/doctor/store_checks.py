"""Checks of a store folder: damage of its files, and a stop that left something half done. Pure."""

from firearrow._native.store_checks.findings import Kind, Severity
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, finds
from firearrow.client.cli.doctor.facts import Facts

KILLED = Trouble(
    Severity.WARNING,
    "its broker was killed, or its machine lost power: the file abort is there",
    "the next start repairs what the stop left half done; with ASYNC_FLUSH the last messages may be lost",
    "`firearrow store verify {folder}`, then start the broker",
)
DAMAGES: dict[str, Trouble] = {
    kind: Trouble(
        kind.severity,
        f"{kind}: {{text}}",
        kind.meaning,
        f"`firearrow store verify {{folder}}` lists all damage; `firearrow store repair {{folder}}`: {kind.repair}",
    )
    for kind in Kind
}


@finds(KILLED)
def unclean_stop(facts: Facts) -> Found:
    """A store that was not closed"""
    store = facts.store
    if store is not None and store.killed and not store.running:
        yield KILLED.of(f"store {store.folder}", folder=store.folder)


@finds(*DAMAGES.values())
def store_damage(facts: Facts) -> Found:
    """Damage of the log, queues, index and tables of a store folder"""
    store = facts.store
    if store is None:
        return
    for damage in store.damages:
        yield DAMAGES[damage.kind].of(f"store {store.folder}", text=damage.text, folder=store.folder)
    if store.left_out:
        yield NotChecked(
            f"{store.left_out}; `firearrow store verify {store.folder}` looks at everything", "the rest"
        )


CHECKS = (unclean_stop, store_damage)
