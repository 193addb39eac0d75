import pytest

from harness.core.errors import UsageError
from harness.quality.agreement import agreement_prompts, check_agreement, continuations
from harness.quality.options import AgreementOptions
from tests.support.model import embedded_tokenizer

_TEXT = "The river runs past the mill. Nobody counts the stones in it.\n" * 50


def test_prompts_are_pieces_of_the_text_and_do_not_depend_on_their_number():
    tokenizer = embedded_tokenizer()
    options = AgreementOptions(prompts=4, prompt_tokens=20, tokens=8)
    prompts = agreement_prompts(options, tokenizer, _TEXT, 3)
    assert [len(prompt) for prompt in prompts] == [20] * 4
    assert all(tokenizer.decode(prompt) in _TEXT for prompt in prompts)
    fewer = AgreementOptions(prompts=2, prompt_tokens=20, tokens=8)
    assert agreement_prompts(fewer, tokenizer, _TEXT, 3) == prompts[:2]
    with pytest.raises(UsageError, match="has only"):
        agreement_prompts(AgreementOptions(prompts=1, prompt_tokens=10**6, tokens=1), tokenizer, _TEXT, 3)


def test_what_follows_is_kept_in_order_and_no_longer_than_asked():
    result = continuations([[1], [2, 3]], 3, lambda ids, tokens: [sum(ids)] * 5)
    assert result == {"greedy_ids": [[1, 1, 1], [5, 5, 5]], "greedy_tokens": 3}


@pytest.mark.parametrize(("changes", "words"), [({"tokens": 0}, "tokens=0"), ({"tokens": 90}, "110 tokens")])
def test_what_cannot_be_measured_is_said(changes: dict[str, int], words: str):
    options = AgreementOptions(**{"prompts": 1, "prompt_tokens": 20, "tokens": 8, **changes})
    with pytest.raises(UsageError, match=words):
        check_agreement(options, 100)
