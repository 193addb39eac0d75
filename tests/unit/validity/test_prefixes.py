from hypothesis import given
from hypothesis import strategies as st

from harness.validity import shareable_tokens


def found_by_a_cache(prompts: list[list[int]]) -> int:
    """A prefix cache of single tokens, filled in the order given: the independent truth."""
    cached: set[tuple[int, ...]] = set()
    found = 0
    for prompt in prompts:
        prefixes = [tuple(prompt[:length]) for length in range(1, len(prompt) + 1)]
        found += sum(prefix in cached for prefix in prefixes)
        cached.update(prefixes)
    return found


def test_a_shared_system_prompt_counts_once_for_each_further_request():
    assert shareable_tokens([(1, 2, 3, 7), (1, 2, 3, 8), (1, 2, 3, 9)]) == 6


def test_what_a_warm_up_asked_before_may_be_found_too():
    assert shareable_tokens([(1, 2, 3, 7), (1, 2, 3, 8)], earlier=[(1, 2, 9), (1, 2, 10)]) == 2 + 3


_PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8)


@given(_PROMPTS, _PROMPTS)
def test_equal_to_what_a_cache_finds_after_earlier_prompts(one: list[list[int]], other: list[list[int]]):
    assert shareable_tokens(other, one) == found_by_a_cache(one + other) - found_by_a_cache(one)


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=12))
def test_equal_to_what_a_cache_finds_in_whatever_order(prompts: list[list[int]]):
    assert shareable_tokens(prompts) == found_by_a_cache(prompts) == found_by_a_cache(prompts[::-1])
