"""What was tried for the policy `auto`: perplexity and recall of each method on the half of the text it is chosen on.

    python benchmarks/kv_auto.py [--windows 8] [--needles 64] [--methods NAME …] [--model FOLDER]

Windows of 2048 tokens are compressed and the next 512 predicted; needles are 5 digits in 1024 tokens, asked for after
compression, with a question that no method saw. PPL is over the full one on the same windows, its 95 % interval
by a paired bootstrap over windows; recall has Wilson's. MB are of a prompt of 2048 tokens: codes, scales, positions
and exact slots in float32, without the slack of pages. One thread; a prompt is computed once for all methods.
"""

import argparse
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

import conf
from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.model.retrieval import retrieval_heads
from backends.kvcompress.spec import KvSpec, from_mapping
from benchmarks.kv import lab_methods as tried
from benchmarks.kv.intervals import perplexity_ratio, share
from benchmarks.kv.lab import Method, forced, read
from benchmarks.kv.text import half_of_corpus, needles, windows
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelSource, resolve
from harness.core.tokenizer import Tokenizer

PROMPT, PREDICTED, NEEDLE_LENGTH = 2048, 512, 1024
_SPEC = {
    "evict": "none", "budget": None, "spread": "uniform", "sinks": tried.SINKS, "recent": 8, "when": "prompt",
    "reindex": False, "quant": "none", "value_quant": None, "granularity": "token_head", "group": 32,
    "codebook": False, "rotate": False, "share": "none",
}  # fmt: skip
_EXACT = from_mapping(_SPEC)


def _codes(bits: int) -> KvSpec:
    return from_mapping({**_SPEC, "quant": f"int{bits}", "codebook": True, "rotate": True})


@dataclass
class Tried:
    """A method and what became of it. log_probs [windows][tokens]; right: of each needle; megabytes at PROMPT."""

    method: Method
    spec: KvSpec = _EXACT
    log_probs: list[list[float]] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    kept: float = 1.0
    megabytes: float = 0.0


def candidates(whole: torch.Tensor) -> dict[str, Tried]:
    """By name; whole: the retrieval heads. The first is what the others are compared with."""
    half = {
        "streaming_llm": tried.evicting(tried.latest, 0.5, 32),
        "h2o": tried.evicting(tried.attention_sum, 0.5, 128),
        "h2o_mean": tried.evicting(tried.attention_mean, 0.5, 128),
        "keydiff": tried.evicting(tried.key_difference, 0.5, 128),
        "heads_streaming_llm": tried.evicting(tried.latest, 0.5, 32, whole),
        "heads_h2o": tried.evicting(tried.attention_sum, 0.5, 128, whole),
        "heads_h2o_mean": tried.evicting(tried.attention_mean, 0.5, 128, whole),
        "auto": tried.evicting(tried.sampled_mean, 0.5, 128, whole),
        "heads_keydiff": tried.evicting(tried.key_difference, 0.5, 128, whole),
    }
    found = {"full": Tried(tried.everything)} | {name: Tried(method) for name, method in half.items()}
    for bits in (4, 3):
        found[f"int{bits}"] = Tried(tried.packed(tried.everything, _codes(bits)), _codes(bits))
    for bits, fraction in ((4, 0.65), (4, 0.57), (4, 0.5), (3, 0.85)):
        evicting = tried.evicting(tried.sampled_mean, fraction, 128, whole)
        found[f"auto_{fraction}_int{bits}"] = Tried(tried.packed(evicting, _codes(bits)), _codes(bits))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--needles", type=int, default=64)
    parser.add_argument("--methods", nargs="*", help="only these (and the full cache)")
    parser.add_argument(
        "--model", type=Path, help="a folder in the Hugging Face layout instead of the default model"
    )
    asked = parser.parse_args()

    torch.set_num_threads(1)
    folder = asked.model or _default_model()
    model, tokenizer = load_decoder(folder, "cpu"), Tokenizer.from_folder(folder)
    config = model.config
    whole = retrieval_heads(model, config.layers, config.kv_heads, config.vocabulary, model.device)
    print(f"{int(whole.sum())} of {whole.numel()} KV heads retrieve", file=sys.stderr)
    methods = candidates(whole)
    if asked.methods:
        methods = {name: methods[name] for name in dict.fromkeys(["full", *asked.methods])}
    _predict(model, tokenizer, methods, asked.windows)
    _recall(model, tokenizer, methods, asked.needles)
    print(_table(methods))
    return 0


def _default_model() -> Path:
    values = OmegaConf.load(Path(conf.__path__[0]) / "model" / "smollm2-135m.yaml")
    wanted = {field.name: values[field.name] for field in fields(ModelSource) if field.name in values}
    return hf_folder(resolve(ModelSource(**wanted)))


def _predict(model: Decoder, tokenizer: Tokenizer, methods: dict[str, Tried], count: int) -> None:
    ids = tokenizer.encode(half_of_corpus("tune"))
    # One token more is predicted from the prompt itself, before anything is compressed, and not counted.
    for number, window in enumerate(windows(ids, count, PROMPT, PREDICTED + 1)):
        prompt = read(model, window.prompt)
        targets = torch.tensor(window.continuation[1:])[:, None]
        for name, one in methods.items():
            left = one.method(prompt)
            found = forced(model, left, window.continuation[:-1], PREDICTED)
            one.log_probs.append(found.gather(1, targets)[:, 0].tolist())
            one.kept = float(left.stays.float().mean())
            one.megabytes = tried.bytes_held(left, one.spec) / 1e6
            _say(f"window {number + 1} of {count}: {name}")


def _recall(model: Decoder, tokenizer: Tokenizer, methods: dict[str, Tried], count: int) -> None:
    for number, needle in enumerate(needles(tokenizer, half_of_corpus("tune"), count, NEEDLE_LENGTH, seed=1)):
        prompt = read(model, needle.context)
        code = tokenizer.encode(f"\nis {needle.code}")[len(tokenizer.encode("\nis")) :]
        for name, one in methods.items():
            # Greedy decoding writes the code exactly where each of its tokens is the most probable after the others.
            found = forced(model, one.method(prompt), [*needle.question, *code[:-1]], len(code))
            one.right.append(bool((found.argmax(-1) == torch.tensor(code)).all()))
            _say(f"needle {number + 1} of {count}: {name}")


def _table(methods: dict[str, Tried]) -> str:
    rows = ["| method | slots kept | MB | PPL over full, % | recall |", "| --- | --- | --- | --- | --- |"]
    full = methods["full"].log_probs
    for name, one in methods.items():
        row = [name, f"{one.kept:.2f}", f"{one.megabytes:.1f}", "–", "–"]
        if full:
            ratio = perplexity_ratio(one.log_probs, full)
            percent = [100 * (value - 1) for value in (ratio.value, ratio.low, ratio.high)]
            row[3] = "{:+.2f} ({:+.2f} … {:+.2f})".format(*percent)
        if one.right:
            found = share(sum(one.right), len(one.right))
            row[4] = f"{sum(one.right)}/{len(one.right)} ({found.low:.2f} … {found.high:.2f})"
        rows.append("| " + " | ".join(row) + " |")
    return "\n".join(rows)


def _say(line: str) -> None:
    print(f"{time.strftime('%X')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
