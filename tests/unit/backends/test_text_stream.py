"""Text of one token at a time against the tokenizer's own decoding of all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from backends.serving.text import TextStream

_TEXT = (
    "the cat sat on the mat, naïve façade, 日本語の文章, Привет мир, नमस्ते, 👨‍👩‍👧 🎉, once again: the cat sat"
)


def _tokenizer() -> Tokenizer:
    """A byte-level BPE whose tokens often hold only a part of a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([_TEXT], trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    return tokenizer


TOKENIZER = _tokenizer()
END = TOKENIZER.get_vocab_size() - 1  # the special token was added last
any_ids = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40)


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text).ids
    return ids


def run(ids: list[int], stops: tuple[str, ...] = (), min_tokens: int = 0) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZER, stops, min_tokens)
    pieces: list[str] = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            return pieces, stream
    return [*pieces, stream.finish()], stream


@given(any_ids)
def test_pieces_add_up_to_the_decoded_whole_for_any_ids(ids: list[int]) -> None:
    pieces, _ = run(ids)
    assert "".join(pieces) == TOKENIZER.decode(ids, skip_special_tokens=True)


@given(st.text())
def test_no_piece_ever_holds_a_broken_character(text: str) -> None:
    pieces, _ = run(encode(text))
    assert "".join(pieces) == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


@given(any_ids, st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3), st.integers(0, 5))
def test_text_ends_before_the_first_stop_string(ids: list[int], stops: list[str], min_tokens: int) -> None:
    pieces, stream = run(ids, tuple(stops), min_tokens)
    whole = TOKENIZER.decode(ids, skip_special_tokens=True)
    got = "".join(pieces)
    assert whole.startswith(got)
    if stream.stopped:
        assert any(whole[len(got) :].startswith(stop) for stop in stops)
    else:
        assert got == whole
    if min_tokens == 0:
        first = min((at for stop in stops if (at := whole.find(stop)) >= 0), default=len(whole))
        assert got == whole[:first]


def test_a_stop_string_may_span_tokens_and_is_held_back_while_it_may_come() -> None:
    stream = TextStream(TOKENIZER, ("AB!",))
    assert [stream.push(token) for token in encode("xA")] == ["x", ""]
    assert [stream.push(token) for token in encode("BA")] == [
        "",
        "AB",
    ]  # not this time; a new beginning is held
    assert [stream.push(token) for token in encode("B!")] == ["", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_a_held_beginning_is_given_out_at_the_end() -> None:
    assert run(encode("xAB"), ("AB!",))[0][-1] == "AB"


def test_special_tokens_have_no_text() -> None:
    assert "".join(run([*encode("done"), END])[0]) == "done"


def test_an_unfinished_character_is_shown_as_replaced_at_the_end_only() -> None:
    ids = encode("ĝ")[:1] if len(encode("ĝ")) > 1 else []
    assert ids, "the test's tokenizer must split this character"
    pieces, _ = run(ids)
    assert pieces == ["", "\ufffd"]


@pytest.mark.parametrize("min_tokens", [0, 3])
def test_stop_strings_do_not_count_before_min_tokens(min_tokens: int) -> None:
    pieces, stream = run(encode("!!!!"), ("!",), min_tokens)
    assert stream.stopped
    assert "".join(pieces) == "!" * max(0, min_tokens - 1)
