"""What recorded runs were asked, and the settings that were all asked the same: what may be ranked."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.records.paths import pick
from harness.records.reader import Run


@dataclass(frozen=True)
class Asked:
    """Settings that were all asked the same requests. groups: runs by setting, those that came to no end included.

    left_out: complete runs of requests that not every setting was asked (seeds that only some of them ran).
    """

    workload: str
    model: str
    groups: Mapping[str, tuple[Run, ...]]
    left_out: int

    @property
    def common(self) -> bool:
        """Whether there is anything that all settings with a complete run were asked."""
        return (
            any(run.status == "complete" for runs in self.groups.values() for run in runs)
            or not self.left_out
        )


def asked(runs: Sequence[Run], labels: Mapping[str, str]) -> list[Asked]:
    """One for each workload and model, in the order of their first run. labels: setting by run id.

    Of settings that were asked different plans only the runs of plans that all were asked are kept; their other runs
    are counted as left out. Runs that failed or ended early stand in what was asked of their workload and model.
    """
    by_subject: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_subject[subject(run)].append(run)
    found = []
    for (workload, model), members in by_subject.items():
        plans: dict[str, set[str]] = defaultdict(set)
        for run in members:
            if run.status == "complete":
                plans[labels[run.id]].add(_plan(run))
        common = set.intersection(*plans.values()) if plans else set()
        kept = [run for run in members if run.status != "complete" or _plan(run) in common]
        groups: dict[str, list[Run]] = defaultdict(list)
        for run in kept:
            groups[labels[run.id]].append(run)
        alike = {label: tuple(sorted(group, key=lambda run: run.id)) for label, group in groups.items()}
        found.append(Asked(workload, model, alike, len(members) - len(kept)))
    return found


def subject(run: Run) -> tuple[str, str]:
    """Names of the workload and of the model."""
    model = pick(run.config, "model.name") or run.fingerprint.get("model")
    return str(pick(run.config, "workload.name") or "a workload"), str(model or "a model")


def _plan(run: Run) -> str:
    """What identifies the requests: the plan, and the files of the model that answered it."""
    return f"{run.fingerprint.get('plan_sha256')} {run.fingerprint.get('model_sha256')}"
