"""Whether log-probabilities could show what a KV setting costs: how the server was fed decides, and the engine.

Log-probabilities of a prompt come from passes over chunks of it. Only what an earlier chunk left in the KV cache is
read back as it is stored; a chunk's own tokens stand in the pass at hand, at full precision. Generated answers always
read the cache.
"""

from typing import Any

from harness.compare.baselines import kv_bits, kv_setting
from harness.metrics.quality_figures import QualityFigure
from harness.records.paths import pick
from harness.records.reader import Run

NOT_SEEN = "not seen"  # the verdict
UNTOLD = ("uninformative", NOT_SEEN)  # verdicts that say nothing of a loss, and so leave it unmeasured
THE_SAME = "both computed the very same: nothing that differs in the KV cache was read"


def why_not_seen(baseline: Run, candidate: Run, figure: QualityFigure) -> str:
    """Why this figure cannot show how the candidate holds its KV cache otherwise than the baseline; "" where it can.

    Where a record does not say how it was measured, it is believed.
    """
    if not _from_log_probs(figure) or not kv_differs(baseline, candidate):
        return ""
    if _evicts(candidate) and pick(candidate.summary, "quality.sees_eviction") is False:
        return "eviction does not show in this engine's log-probabilities"
    if pick(candidate.summary, "quality.sees_kv_cache") is False:
        return "the KV cache does not show in this engine's log-probabilities"
    if pick(candidate.summary, f"{figure.path}_cached") == 0:
        return "the answers were read in one pass, not from the KV cache (quality.chunk is as long as the prompts)"
    if _in_one_pass(candidate, figure):
        return "the text was read in one pass, not from the KV cache (quality.chunk is as long as the text)"
    return ""


def kv_differs(baseline: Run, candidate: Run) -> bool:
    """Whether the candidate's KV cache is held otherwise than the baseline's, and less exactly."""
    return kv_setting(baseline) != kv_setting(candidate) and kv_bits(candidate) < max(1, kv_bits(baseline))


def _evicts(run: Run) -> bool:
    backend: dict[str, Any] = run.config.get("backend") or {}
    evict = (backend.get("kv") or {}).get("evict", "none")
    return evict != "none" or backend.get("eviction_keep") is not None


def _from_log_probs(figure: QualityFigure) -> bool:
    return figure.chance is None or figure.task == "reasoning" or figure.path.endswith("_options")


def _in_one_pass(run: Run, figure: QualityFigure) -> bool:
    """Whether a text was fed whole. A server that ran already is fed as it was started, which is not known."""
    chunk = pick(run.summary, "quality.chunk")
    if figure.chance is not None or chunk is None or pick(run.config, "backend.base_url") is not None:
        return False
    if figure.task == "agreement":
        options = pick(run.config, "quality.agreement") or {}
        length = (options.get("prompt_tokens") or 0) + (options.get("tokens") or 0)
    else:
        length = pick(run.summary, "quality.window") or 0
    return 0 < length <= chunk
