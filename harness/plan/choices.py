"""The choices of conf/plan/ and what they mean, from the files themselves."""

from importlib.resources import files

GROUPS = {
    "model": "which model",
    "hardware": "on what",
    "policy": "how much of the past stays in the KV cache",
}


def choices_of(group: str) -> dict[str, str]:
    """Names of a group's choices and their one-line meanings: the first line of each file."""
    found = {}
    for entry in files("conf").joinpath("plan", group).iterdir():
        if entry.name.endswith(".yaml"):
            with entry.open(encoding="utf-8") as file:
                found[entry.name.removesuffix(".yaml")] = file.readline().lstrip("# ").strip()
    return dict(sorted(found.items()))
