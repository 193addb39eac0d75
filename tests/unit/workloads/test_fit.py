import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.tokenizer import Message, Tokenizer
from workloads.fit import Prompt, PromptTooShort, fit

# Text in which token counts are hard to predict: digits (a token each), runs of spaces, characters of several
# tokens, letters that merge with what follows.
HARD_TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(" \n\t0123456789aeiou.,'\"<|>_"), st.characters(exclude_categories=["Cs"])
    ),
    min_size=1,
    max_size=300,
).filter(lambda text: text.strip() != "")


def endless(text: str, characters: int) -> str:
    return (text * (characters // len(text) + 1))[:characters]


def user(filler: str) -> list[Message]:
    return [{"role": "user", "content": filler}]


def between(filler: str) -> list[Message]:
    return [
        {"role": "system", "content": "Be brief 1"},
        {"role": "user", "content": f"4 {filler}7\n\nSummarize."},
    ]


def shortest(tokenizer: Tokenizer, build: object) -> int:
    return len(tokenizer.encode(tokenizer.render_chat(build(""))))  # type: ignore[operator]


def assert_exact(tokenizer: Tokenizer, prompt: Prompt, target: int) -> None:
    assert len(prompt.ids) == target
    assert list(prompt.ids) == tokenizer.encode(tokenizer.render_chat(prompt.messages))
    assert prompt.text == tokenizer.render_chat(prompt.messages)


@settings(max_examples=150)
@given(text=HARD_TEXT, extra=st.integers(0, 300), embedded=st.booleans())
def test_any_text_is_cut_to_exactly_the_wanted_length(
    tokenizer: Tokenizer, text: str, extra: int, embedded: bool
) -> None:
    for marker in tokenizer.special_texts:
        text = text.replace(marker, "x")
    build = between if embedded else user
    target = shortest(tokenizer, build) + extra
    assert_exact(tokenizer, fit(tokenizer, build, lambda n: endless(text, n), target), target)


@pytest.mark.parametrize("extra", [0, 1, 2, 3, 7, 8000])
@pytest.mark.parametrize(
    "text", ["plain words of a text ", "1234567890", "🧑‍🚀", "漢字仮名交じり文", "   \n\n  x", "aaaaaaaa"]
)
def test_lengths_at_the_boundary_and_long_ones(tokenizer: Tokenizer, text: str, extra: int) -> None:
    target = shortest(tokenizer, between) + extra
    assert_exact(tokenizer, fit(tokenizer, between, lambda n: endless(text, n), target), target)


def test_the_filler_is_the_text_itself(tokenizer: Tokenizer) -> None:
    text = " ".join(f"word{i} follows" for i in range(2000))
    content = fit(tokenizer, user, lambda n: endless(text, n), 500).messages[0]["content"]
    assert text.startswith(content[:-20])


def test_extra_counts_from_the_empty_filler(tokenizer: Tokenizer) -> None:
    prompt = fit(tokenizer, between, lambda n: endless("some text ", n), extra=33)
    assert_exact(tokenizer, prompt, shortest(tokenizer, between) + 33)


def test_a_length_below_template_and_fixed_parts_tells_the_smallest(tokenizer: Tokenizer) -> None:
    smallest = shortest(tokenizer, between)
    with pytest.raises(PromptTooShort) as caught:
        fit(tokenizer, between, lambda n: endless("text ", n), smallest - 1)
    assert caught.value.smallest == smallest


def test_text_that_the_vocabulary_lacks_altogether_still_ends(tokenizer: Tokenizer) -> None:
    lacking = next(
        (chr(code) for code in range(0x20) if chr(code).strip() and not tokenizer.encode(chr(code))), None
    )
    assert lacking is not None, "this vocabulary lacks some control character"
    target = shortest(tokenizer, user) + 40
    assert_exact(tokenizer, fit(tokenizer, user, lambda n: endless(lacking, n), target), target)
