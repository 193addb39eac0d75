from hypothesis import given
from hypothesis import strategies as st

from harness.compare.same_model import agreement, divergence


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_the_divergence_is_the_length_of_the_common_beginning(ours: list[int], theirs: list[int]):
    at = divergence(ours, theirs)
    assert ours[:at] == theirs[:at]
    assert at == min(len(ours), len(theirs)) or ours[at] != theirs[at]
    assert divergence(theirs, ours) == at


def test_agreement_counts_leading_tokens_of_each_prompt():
    found = agreement([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 2, 3], [4, 9, 6], [0, 8, 9]])
    assert (found.same, found.prompts, found.middle, found.tokens) == (1, 3, 1, 3)


def test_continuations_of_other_prompts_are_not_compared():
    assert agreement([[1], [2]], [[1]]) is None
    assert agreement([], []) is None
