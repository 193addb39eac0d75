from collections.abc import Sequence

import pytest

from harness.core.errors import UsageError
from harness.quality.agreement import agreement_pieces, check_agreement, continuations, next_tokens
from harness.quality.asking import token_named
from harness.quality.options import AgreementOptions
from harness.records.schema import NEXT_TOKEN_COLUMNS
from tests.support.model import embedded_tokenizer

_TEXT = "The river runs past the mill. Nobody counts the stones in it.\n" * 50


def test_pieces_are_of_the_text_and_do_not_depend_on_their_number():
    tokenizer = embedded_tokenizer()
    options = AgreementOptions(prompts=4, prompt_tokens=20, tokens=8, alternatives=5)
    pieces = agreement_pieces(options, tokenizer, _TEXT, 3)
    assert [len(piece) for piece in pieces] == [28] * 4
    assert all(tokenizer.decode(piece) in _TEXT for piece in pieces)
    fewer = AgreementOptions(prompts=2, prompt_tokens=20, tokens=8, alternatives=5)
    assert agreement_pieces(fewer, tokenizer, _TEXT, 3) == pieces[:2]
    longer = AgreementOptions(prompts=1, prompt_tokens=10**6, tokens=1, alternatives=5)
    with pytest.raises(UsageError, match="has only"):
        agreement_pieces(longer, tokenizer, _TEXT, 3)


def test_what_is_known_of_the_last_positions_becomes_a_table():
    def ask(ids: Sequence[int]) -> list[dict[int, float]]:
        return [{token: -float(place), 99: -0.5} for place, token in enumerate(ids)]

    table = next_tokens([[5, 6, 7], [8, 9, 4]], 2, ask)
    assert list(table.columns) == list(NEXT_TOKEN_COLUMNS)
    assert table[table["token"] != 99].to_numpy().tolist() == [
        [0, 0, 6, -1],
        [0, 1, 7, -2],
        [1, 0, 9, -1],
        [1, 1, 4, -2],
    ]


def test_a_token_is_known_by_its_id_or_by_a_text_that_is_its_alone():
    tokenizer = embedded_tokenizer()
    (word,) = tokenizer.encode(" the")
    assert token_named(f"token_id:{word}", tokenizer) == token_named(" the", tokenizer) == word
    assert token_named("\ufffd", tokenizer) is None  # every part of a character decodes to it
    assert token_named("no token at all", tokenizer) is None


def test_what_follows_is_kept_in_order_and_no_longer_than_asked():
    result = continuations([[1], [2, 3]], 3, lambda ids, tokens: [sum(ids)] * 5)
    assert result == {"greedy_ids": [[1, 1, 1], [5, 5, 5]], "greedy_tokens": 3}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 0}, "tokens=0"),
        ({"tokens": 80}, "100 tokens"),
        ({"alternatives": 21}, "alternatives=21"),
    ],
)
def test_what_cannot_be_measured_is_said(changes: dict[str, int], words: str):
    options = AgreementOptions(
        **{"prompts": 1, "prompt_tokens": 20, "tokens": 8, "alternatives": 5, **changes}
    )
    with pytest.raises(UsageError, match=words):
        check_agreement(options, 100)
