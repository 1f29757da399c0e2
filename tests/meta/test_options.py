"""docs/OPTIONS.md is current, and every option has a sentence (`python -m tests.meta.options` writes the file)."""

import dataclasses

import pytest

from firearrow.broker.base.options import Options
from firearrow.broker.tables.naming_options import ACTING
from tests.meta.options import CLIENT_KINDS, INTERNAL, OPTIONS, document, meanings


def test_the_document_is_current() -> None:
    assert OPTIONS.read_text("utf-8") == document(), "run python -m tests.meta.options"


@pytest.mark.parametrize("kind", [Options, *CLIENT_KINDS])
def test_every_option_has_one_sentence(kind: type) -> None:
    notes = meanings(kind)
    for field in dataclasses.fields(kind):
        if field.name != INTERNAL:
            note = notes.get(field.name, "")
            assert note.endswith("."), field.name
            assert ". " not in note, (field.name, note)


def test_every_option_of_the_name_server_has_one_sentence() -> None:
    for key, option in ACTING.items():
        assert option.meaning.endswith("."), key
