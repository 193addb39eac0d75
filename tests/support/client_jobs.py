"""Jobs for the measuring client against the scripted server, and a tokenizer small enough to know by heart."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tokenizers import Regex
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from backends.base import Endpoint
from harness.client.job import ClientJob
from harness.core.requests import PlannedRequest
from harness.load.options import ClosedOptions, ConstantOptions, LoadOptions, PoissonOptions

WORDS = ("?", " word", " other", "a", "b", "c", "</s>")


@cache
def tiny_tokenizer() -> Path:
    """A folder whose tokenizer makes one token of each space-led word and of each other character."""
    folder = Path(mkdtemp(prefix="tokenizer-"))
    fast = FastTokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="?"))
    fast.pre_tokenizer = Split(Regex(r" [a-z]+|</s>|[\s\S]"), "isolated")
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return folder


def tokens_by_regex(text: str) -> int:
    """The same count, without the tokenizer."""
    return len(re.findall(r" [a-z]+|</s>|[\s\S]", text))


def load(**changes: Any) -> LoadOptions:
    """Load options for quick tests: a closed loop of 4 with short patience."""
    kind = {"constant": ConstantOptions, "poisson": PoissonOptions}.get(
        changes.get("name", ""), ClosedOptions
    )
    options = kind(
        name="closed",
        concurrency=4,
        rate=None,
        requests=None,
        duration_s=None,
        drain_s=5.0,
        warmup=0,
        connect_timeout_s=5.0,
        first_token_timeout_s=20.0,
        token_timeout_s=20.0,
        request_timeout_s=60.0,
        retries=0,
        retry_wait_s=0.01,
        workers="auto",
        **({"ramp_s": 0.0} if kind is ClosedOptions else {}),
    )
    return replace(options, **changes)


def plan(count: int, tokens: int | None = 5, turns: int = 1, think_s: float = 0.0) -> list[PlannedRequest]:
    """`count` requests; request i is known to the server by its first prompt id and last message, i."""
    return [
        PlannedRequest(
            index=number,
            prompt_ids=(number, 7, 8, 9),
            messages=({"role": "user", "content": str(number)},),
            output_tokens=tokens,
            max_output_tokens=tokens or 16,
            session=number // turns,
            turn=number % turns,
            think_time_s=think_s if number % turns else 0.0,
        )
        for number in range(count)
    ]


def job(
    base_url: str,
    requests: Sequence[PlannedRequest],
    spool: Path,
    options: LoadOptions | None = None,
    **more: Any,
) -> ClientJob:
    """A measured phase."""
    fields: dict[str, Any] = {
        "endpoint": Endpoint(base_url, "scripted", {"Authorization": "Bearer secret-key"}),
        "api": "completions",
        "requests": requests,
        "phase": "measured",
        "load": options or load(),
        "tokenizer_folder": tiny_tokenizer(),
        "spool": spool,
    }
    return ClientJob(**{**fields, **more})


def quiet(_: Any) -> None:
    """Progress that nobody looks at."""
