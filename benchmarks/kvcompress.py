"""The KV-compression engine beside transformers and kvpress: same model, text and threads, on one machine.

    python benchmarks/kvcompress.py [--case NAME] [--check] [--readings FILE] [--peer-python FILE] [--half judge]

Every implementation is a process (`kv/worker.py`) with an environment of its own; settings take turns, so that a
machine that changes changes for all. Speeds are CPU seconds of one thread, medians of --rounds. The peers' versions
are those of benchmarks/peers/kvpress.txt; where they are not installed, the command that installs them is told.

--readings FILE adds what is measured to FILE, and the tables are of all that FILE holds: a long measurement in
pieces. Quality goes on where the last piece ended; speeds and memory are measured again. --ours 'NAME: quant=int4 …'
names another setting for the case "settings", or puts a known name's anew.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

import conf
from benchmarks.kv import text
from benchmarks.kv.cases import CASES, Bench
from benchmarks.kv.processes import Worker
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import OURS, PEERS, ours, peer
from benchmarks.kv.tables import missed, quality_table, speed_table, target_table
from benchmarks.kv.targets import all_targets
from harness.core.cache import cache_root
from harness.core.errors import HarnessError, UsageError
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelSource, resolve
from harness.core.tokenizer import Tokenizer

_DEFAULT_PEERS = ("DynamicCache", "quanto-4")


def main() -> int:
    options = _parser().parse_args()
    options.case = options.case or [name for name in CASES if name != "settings"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        try:
            bench = _bench(options, Path(folder) / "log", stack)
            for case in options.case if options.rounds else ():
                CASES[case](bench)
        except HarnessError as error:
            print(error, file=sys.stderr)
            return 2
    _print_all(bench)
    targets = list(all_targets(bench.readings, bench.named, options.half))
    print(target_table(targets))
    return 1 if options.check and any(missed(targets, options.case)) else 0


def _print_all(bench: Bench) -> None:
    full = {"ours": bench.named("full"), "transformers": peer("DynamicCache")}
    settings = [*map(bench.named, OURS), *bench.others, *map(peer, PEERS)]
    print(speed_table(bench.readings), end="\n\n")
    print(quality_table(bench.readings, [(one, full[one.who]) for one in settings], bench.options.half))
    print()


def _bench(options: argparse.Namespace, log: Path, stack: ExitStack) -> Bench:
    """Starts the processes that the cases need."""
    given = dict(_name_and_words(text) for text in options.ours)
    words = {**OURS, **given}
    model = model_folder()
    start_ours = partial(Worker, "ours", Path(sys.executable), model, options.threads, log)
    workers = {}
    if options.rounds:
        workers["ours"] = stack.enter_context(start_ours())
        if not options.no_peers:
            _check_installed(options.peer_python)
            peers = Worker("transformers", options.peer_python, model, options.threads, log)
            workers["transformers"] = stack.enter_context(peers)
    return Bench(
        options=options,
        readings=Readings(options.readings),
        workers=workers,
        start_ours=start_ours,
        named=lambda name: ours(name, words[name]),
        others=[ours(name, words[name]) for name in given if name not in OURS],
        peers=[] if options.no_peers else [peer(name) for name in options.peer or _DEFAULT_PEERS],
        tokenizer=Tokenizer.from_folder(model),
    )


def _name_and_words(given: str) -> tuple[str, str]:
    name, colon, words = given.partition(":")
    if not colon:
        raise UsageError(f"--ours {given!r} has no name. Write 'NAME: quant=int4 …'.")
    return name.strip(), words


def _check_installed(python: Path) -> None:
    if not python.is_file():
        home = python.parents[1]
        raise HarnessError(
            f"transformers and kvpress are not installed: python -m venv {home} && {home}/bin/pip install "
            "-r benchmarks/peers/kvpress.txt (or --peer-python FILE, or --no-peers for ours alone)"
        )


def model_folder() -> Path:
    """The default model in the Hugging Face layout."""
    values = OmegaConf.load(Path(conf.__path__[0]) / "model" / "smollm2-135m.yaml")
    fields = {str(key): value for key, value in values.items() if key != "defaults"}
    return hf_folder(resolve(ModelSource(**fields), print), print)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The KV-compression engine beside transformers and kvpress.")
    add = parser.add_argument
    add("--case", action="append", choices=list(CASES), help="only this one, or these")
    add("--check", action="store_true", help="exit 1 where a target of these cases is missed")
    add("--rounds", type=int, default=5, help="of each speed (default 5); 0: the tables of --readings alone")
    add("--half", choices=text.HALVES, default="judge", help="of the corpus (default judge)")
    add("--windows", type=int, default=16, help="of 2048 + 512 tokens (default 16)")
    add("--trials", type=int, default=128, help="needles (default 128)")
    add("--peer-trials", type=int, default=32, help="needles of the peers (default 32)")
    add("--only", action="append", help="of ours by name, in the cases of speed and memory (default all)")
    add("--batch", action="append", type=int, help="of the case decode (default 1 and 8)")
    add("--context", action="append", type=int, help="of the case quantised (default 1024 to 8192)")
    add("--threads", type=int, default=1, help="(default 1)")
    add(
        "--peer",
        action="append",
        choices=list(PEERS),
        help="beside ours (default: DynamicCache and quanto-4)",
    )
    add("--no-peers", action="store_true", help="ours alone")
    add("--ours", action="append", default=[], metavar="'NAME: WORDS'", help="another setting of ours")
    add("--readings", type=Path, help="a file to add the readings to")
    add("--peer-python", type=Path, default=cache_root() / "peers" / "kvpress" / "bin" / "python")
    return parser


if __name__ == "__main__":
    sys.exit(main())
