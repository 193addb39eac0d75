from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import ModelError
from harness.core.tokenizer import Tokenizer
from tests.support.model import embedded_tokenizer

# The model's vocabulary lacks a few bytes: those of control characters and of planes without any letters.
LETTERS = st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]) | st.sampled_from("\n\t")


@given(st.text(alphabet=LETTERS))
def test_decoding_gives_back_the_text(text: str):
    tokenizer = embedded_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.from_regex(r"[0-9 ]{1,20}", fullmatch=True))
def test_every_digit_is_a_token_of_its_own(text: str):
    tokenizer = embedded_tokenizer()
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode(text)]
    assert all(len(piece.strip(" ")) <= 1 for piece in pieces)


def test_chat_template_marks_roles_and_opens_the_answer():
    tokenizer = embedded_tokenizer()
    text = tokenizer.render_chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids[0] == 1  # the marker is one special token, not its letters
    assert tokenizer.eos_ids == (2,)


def test_offsets_cover_the_text():
    tokenizer = embedded_tokenizer()
    text = "Numbers 123 and words"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert len(ids) == len(offsets)
    assert "".join(text[start:end] for start, end in offsets) == text


def test_a_model_may_have_several_end_tokens(tmp_path: Path):
    embedded_tokenizer().fast.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    assert Tokenizer.from_folder(tmp_path).eos_ids == (2,)
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    assert Tokenizer.from_folder(tmp_path).eos_ids == (2, 0)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 2, 7]}')
    assert Tokenizer.from_folder(tmp_path).eos_ids == (2, 0, 7)


def test_a_folder_without_a_tokenizer_is_a_clear_error(tmp_path: Path):
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


def test_a_template_that_refuses_is_a_clear_error():
    tokenizer = Tokenizer(embedded_tokenizer()._fast, "{{ raise_exception('roles must alternate') }}", {}, ())
    with pytest.raises(ModelError, match="roles must alternate"):
        tokenizer.render_chat([{"role": "user", "content": "x"}])


def test_a_model_without_a_template_says_so():
    tokenizer = Tokenizer(embedded_tokenizer()._fast, None, {}, ())
    with pytest.raises(ModelError, match="no chat template"):
        tokenizer.render_chat([{"role": "user", "content": "x"}])


def test_files_that_have_not_changed_are_read_once(tmp_path: Path):
    embedded_tokenizer().fast.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.from_folder(tmp_path) is Tokenizer.from_folder(tmp_path)
