"""Was the planned work done, and were the tokens counted rightly?"""

import numpy as np
import pandas as pd

from harness.metrics.latency import measured, succeeded
from harness.validity.check import Check, Evidence, Outcome, not_known

_PER_TOKEN = ("tpot_ms", "output_tokens_per_s")
# A text counted again need not split as it was generated, and an end-of-text token has no text at all.
_RECOUNT_SLACK = 0.05


def _successful(evidence: Evidence) -> pd.DataFrame:
    rows = measured(evidence.requests)
    return rows[succeeded(rows)]


def _share_differing(counted: pd.Series, expected: pd.Series, slack: float = 0.0) -> float | None:
    """Share of the rows that differ by more than 1 token and more than `slack` of the expected count.

    With slack 0 every difference counts. None where no row has both values.
    """
    known = counted.notna() & expected.notna()
    if not known.any():
        return None
    difference = (counted[known] - expected[known]).abs().astype(float)
    allowed = np.maximum(1.0, slack * expected[known].astype(float)) if slack else 0.0
    return float((difference > allowed).mean())


def _output_lengths(evidence: Evidence, limit: float) -> Outcome:
    rows = _successful(evidence)
    share = _share_differing(rows["output_tokens"], rows["output_tokens_planned"])
    if share is None:
        return not_known("Output lengths were free.")
    return Outcome(share <= limit, share)


def _token_counts(evidence: Evidence, limit: float) -> Outcome:
    rows = _successful(evidence)
    rows = rows[rows["output_tokens_source"].isin(["usage", "ids"])]
    share = _share_differing(rows["output_tokens"], rows["output_tokens_tokenizer"], _RECOUNT_SLACK)
    if share is None:
        return not_known("The server gave no count to compare with the tokenizer's.")
    return Outcome(share <= limit, share)


def _prompt_lengths(evidence: Evidence, limit: float) -> Outcome:
    rows = _successful(evidence)
    share = _share_differing(rows["prompt_tokens_usage"], rows["prompt_tokens"])
    if share is None:
        return not_known("The server did not say how long the prompts were.")
    return Outcome(share <= limit, share)


OUTPUT_LENGTHS = Check(
    name="output_lengths",
    title="Answers are as long as planned",
    problem="answers not as long as planned",
    spoils=("tpot_ms", "e2e_ms", "output_tokens_per_s", "requests_per_s"),
    limit=0.0,
    unit="of requests differ",
    advice="Does the engine honour ignore_eos and min_tokens, and is its context long enough?",
    measure=_output_lengths,
)
TOKEN_COUNTS = Check(
    name="token_counts",
    title="Server and tokenizer count alike",
    problem="token counts disagree",
    spoils=_PER_TOKEN,
    limit=0.02,
    unit="of requests differ",
    advice="Check that the model's tokenizer is the one the server uses (model=…, backend.model_name).",
    measure=_token_counts,
)
PROMPT_LENGTHS = Check(
    name="prompt_lengths",
    title="Prompts arrived as long as planned",
    problem="prompts changed on the way",
    spoils=("ttft_ms", "ttft_from_send_ms", "e2e_ms", "memory.kv_per_request_bytes"),
    limit=0.0,
    unit="of requests differ",
    advice="The server changed the prompts (a BOS, a template, a cut): use backend.api=completions.",
    measure=_prompt_lengths,
)
