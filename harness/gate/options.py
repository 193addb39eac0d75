"""What a gate is told: gate.KEY=VALUE on its command line; values come from conf/gate/config.yaml."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.compare.measures import MOST_GATING
from harness.core.errors import UsageError
from harness.gate.together import least_p
from harness.metrics.quality_figures import QUALITY_FIGURES

MODES = ("paired", "stored")
_FEWEST_REPEATS = 5  # both looks together, 4 against 4 runs each could hardly reject at a share of 1 %
FIRST = ("refuse", "accept")


@dataclass
class GateOptions:
    """mode: paired or stored. accept: make tonight the baseline, whatever was found. first: where nothing was
    accepted yet, refuse to measure in paired mode, or accept tonight.

    baseline, candidate: arguments of `python -m harness` that only this side gets (paired); null for the baseline
    takes the accepted environment of the engine. repeats: runs a side in one look. gating: figures that decide, null
    for the usual four. least_effect: the smallest relative change that matters. false_alarms: the chance that an
    unchanged night alarms, shared by the figures that decide. suspicion: p below which a first look asks for a
    second. largest_blind: where a change of this size could have gone unseen, the night is inconclusive.
    fewest_nights: history that stored mode needs before it knows its floor.
    exit_regressed, exit_inconclusive: exit codes. folder: where nights and their history are kept; baselines: where
    what was accepted is.
    """

    mode: str = MISSING
    accept: bool = MISSING
    first: str = MISSING
    baseline: list[str] | None = MISSING
    candidate: list[str] = MISSING
    repeats: int = MISSING
    gating: list[str] | None = MISSING
    least_effect: float = MISSING
    false_alarms: float = MISSING
    suspicion: float = MISSING
    largest_blind: float = MISSING
    fewest_nights: int = MISSING
    exit_regressed: int = MISSING
    exit_inconclusive: int = MISSING
    folder: str = MISSING
    baselines: str = MISSING


def options_from(arguments: Sequence[str]) -> tuple[GateOptions, list[str]]:
    """The gate's own options, and the arguments that go to `python -m harness`. Raises UsageError."""
    own = [argument.removeprefix("gate.") for argument in arguments if argument.startswith("gate.")]
    rest = [argument for argument in arguments if not argument.startswith("gate.")]
    for argument in rest:
        if argument.partition("=")[0] in ("repeats", "results_dir"):
            key = {"repeats": "gate.repeats", "results_dir": "gate.folder"}[argument.partition("=")[0]]
            raise UsageError(f"{argument} is not for a gate, which sets it for each run itself. Use {key}=….")
    defaults = OmegaConf.create(files("conf").joinpath("gate", "config.yaml").read_text(encoding="utf-8"))
    try:
        given = OmegaConf.from_dotlist(own)
        merged = OmegaConf.merge(OmegaConf.structured(GateOptions), defaults, given)
        options = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        first = str(error).splitlines()[0]
        keys = ", ".join(GateOptions.__dataclass_fields__)
        raise UsageError(f"{' '.join(own)}: {first} Keys of gate.: {keys}.") from None
    assert isinstance(options, GateOptions)
    _check(options)
    return options, rest


def _check(options: GateOptions) -> None:
    if options.mode not in MODES:
        raise UsageError(f"gate.mode={options.mode} is unknown: choose one of {', '.join(MODES)}.")
    if options.first not in FIRST:
        raise UsageError(f"gate.first={options.first} is unknown: choose one of {', '.join(FIRST)}.")
    if options.repeats < _FEWEST_REPEATS:
        raise UsageError(
            f"gate.repeats={options.repeats}: a verdict takes at least {_FEWEST_REPEATS} runs a side."
        )
    for key in ("least_effect", "false_alarms", "suspicion", "largest_blind"):
        if not 0 < getattr(options, key) < 1:
            raise UsageError(f"gate.{key}={getattr(options, key):g} must be between 0 and 1: 0.03 is 3 %.")
    if options.fewest_nights < 3:
        raise UsageError(f"gate.fewest_nights={options.fewest_nights} must be at least 3.")
    if options.mode == "stored" and options.baseline:
        raise UsageError(
            "gate.baseline is for gate.mode=paired: stored mode takes the accepted night's figures."
        )
    if quality := sorted({figure.path for figure in QUALITY_FIGURES} & set(options.gating or ())):
        raise UsageError(
            f"gate.gating: {', '.join(quality)} cannot decide a night, which is judged over runs, and runs of one "
            "engine give the same answers. Leave it out and compare answers item by item with "
            "python -m harness.compare."
        )
    if options.mode == "paired":
        _check_reachable(options)


def _check_reachable(options: GateOptions) -> None:
    """Refuse limits below the least p of so many runs, with which no night could ever fail."""
    least = least_p(options.repeats, options.repeats)
    both = least**2
    if options.suspicion < least:
        raise UsageError(
            f"gate.suspicion={options.suspicion:g}: {options.repeats} runs a side have no p below {least:.2g}, so "
            "that no look could ask for a second. Raise gate.suspicion or gate.repeats."
        )
    figures = len(set(options.gating or ())) or MOST_GATING
    if options.false_alarms / figures < both:
        raise UsageError(
            f"gate.false_alarms={options.false_alarms:g}, shared by {figures} figures: two looks of "
            f"{options.repeats} runs a side have no p below {both:.2g}, so that no night could fail. Raise "
            "gate.false_alarms or gate.repeats."
        )
