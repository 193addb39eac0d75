"""The wheel carries what a run needs and nothing else, and works from any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import ROOT, records
from tests.support.fixtures import ScriptedServer


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy of what git knows: setuptools leaves its own folders beside the source.
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_four_packages(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "harness",
        "backends",
        "workloads",
        "conf",
    }
    assert "conf/workload/rag.yaml" in names
    assert any(name.startswith("harness/report/templates/") for name in names)
    assert {"harness/calibrate/truth_server.c", "harness/client/chunk_reader.c"} <= set(names)
    listed = subprocess.run(
        ["git", "ls-files", "backends/environments"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    kept = listed.stdout.split()  # an engine is installed from them
    assert "backends/environments/openvino-cpu.txt" in kept
    assert set(kept) <= set(names)


def test_it_runs_installed_in_another_folder(wheel: Path, server: ScriptedServer, tmp_path: Path):
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True)
    work = tmp_path / "work"
    work.mkdir()
    probe = "import harness, conf; print(harness.__file__, conf.__file__)"
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    where = subprocess.run(
        [sys.executable, "-c", probe], cwd=work, env=environment, capture_output=True, text=True, check=True
    )
    assert where.stdout.count(str(site)) == 2
    command = [sys.executable, "-m", "harness", "backend=endpoint", f"backend.base_url={server.base_url}"]
    small = ["workload.requests=3", "workload.output_tokens=4", "workload.think_time_s=0", "load.warmup=1"]
    done = subprocess.run(
        [*command, *small], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (record,) = records(work / "results")
    assert record["status"] == "complete"
    assert (work / done.stdout.strip().splitlines()[-1]).is_file()
