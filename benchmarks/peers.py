"""Other load generators beside this project's client, all against a server that knows when it sent each token.

    python benchmarks/peers.py [--environments FOLDER] [--case NAME] [--client NAME] [--runs 3] [--readings FILE]

Each peer runs from an environment of its own, FOLDER/NAME (by default in the cache folder); one that is not there is
a row of the table that says how to install it. Every reading is two runs, the load itself and the same with a tenth
of its tokens: the first gives the latencies and the rate, the difference of their CPU time (user + system of the
whole process tree) the cost of a token, in which start-up and preparation cancel. Clients take turns, so that a
machine that changes changes for all. The truth server has a core to itself at real-time priority; this project's
client pins itself to the other one, the peers may use both.

--readings FILE adds each reading to FILE, and the table is of all that FILE holds: a long measurement in pieces.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

import conf
from benchmarks.peer_readings import Reading
from benchmarks.peer_runs import Case, measure
from benchmarks.peer_table import table
from benchmarks.peer_tools import TOOLS, Tool
from harness.calibrate.limits import rate_load
from harness.calibrate.loads import Load
from harness.calibrate.server import compiled
from harness.core.cache import cache_root
from harness.core.errors import HarnessError
from harness.core.model_store import ModelSource, resolve

CASES = (
    Case(
        "light",
        "16 streams × 50 tokens/s, 128 requests × 100 tokens, closed loop",
        Load("", 128, 100, 20_000),
        16,
    ),
    Case("5k", "5,000 tokens/s on 16 streams", rate_load(5_000, 6.0, 16), 16),
    Case("32k", "32,000 tokens/s on 64 streams", rate_load(32_000, 3.0, 64), 64),
)


def main() -> int:
    options = argparse.ArgumentParser(description="Other load generators beside this project's client.")
    options.add_argument(
        "--environments", type=Path, default=cache_root() / "peers", help="a folder for each"
    )
    options.add_argument(
        "--case", action="append", choices=[case.name for case in CASES], help="only this one, or these"
    )
    options.add_argument(
        "--client", action="append", choices=[tool.name for tool in TOOLS], help="only this one, or these"
    )
    options.add_argument("--runs", type=int, default=3, help="of each client in each case (default 3)")
    options.add_argument("--readings", type=Path, help="a file to add the readings to")
    chosen = options.parse_args()
    if compiled() is None:
        print("No C compiler: the truth server in Python cannot carry these loads.", file=sys.stderr)
        return 1
    tools = [tool for tool in TOOLS if tool.name in (chosen.client or [tool.name])]
    cases = [case for case in CASES if case.name in (chosen.case or [case.name])]
    readings = _kept(chosen.readings)
    failures = _not_installed(tools, chosen.environments)
    tokenizer = _tokenizer()
    for case in cases:
        for _ in range(chosen.runs):
            for tool in tools:
                if tool.name in failures:
                    continue
                try:
                    reading = measure(tool, case, chosen.environments, tokenizer)
                except HarnessError as error:
                    failures[tool.name] = f"{case.name}: {error}"
                    continue
                readings.append(reading)
                _keep(chosen.readings, reading)
    titles = {tool.name: tool.title for tool in TOOLS}
    for case in CASES:
        of_case = [reading for reading in readings if reading.case == case.name]
        if of_case or case in cases:
            print(f"\n{case.title}; at most {case.most_tokens_per_s:,.0f} tokens/s\n")
            print(table(of_case, titles, failures))
    for name, failure in failures.items():
        print(f"\n{titles[name]}: {failure}")
    return 1 if failures else 0


def _not_installed(tools: list[Tool], environments: Path) -> dict[str, str]:
    """What is missing, by the tool's name."""
    missing = {}
    for tool in tools:
        try:
            tool.check_installed(environments)
        except HarnessError as error:
            missing[tool.name] = str(error)
    return missing


def _tokenizer() -> Path:
    """The default model's tokenizer: the peers make their prompts with it."""
    values = OmegaConf.load(Path(conf.__path__[0]) / "model" / "smollm2-135m.yaml")
    fields = {str(key): value for key, value in values.items() if key != "defaults"}
    return resolve(ModelSource(**fields), print).tokenizer_folder


def _kept(file: Path | None) -> list[Reading]:
    if file is None or not file.is_file():
        return []
    return [Reading(**json.loads(line)) for line in file.read_text().splitlines()]


def _keep(file: Path | None, reading: Reading) -> None:
    if file is not None:
        with file.open("a") as kept:
            kept.write(json.dumps(asdict(reading)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
