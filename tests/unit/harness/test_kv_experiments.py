"""Every setting that the experiments name is one that its engine would take, and none changes two things at once."""

from collections.abc import Iterator
from importlib.resources import files

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from backends.kvcompress.spec import from_mapping, with_full_precision
from backends.registry import make_backend
from harness.config import Config, register_schemas, typed
from harness.core.errors import UsageError
from harness.quality.phase import engine_for_quality
from harness.quality.reading import check_reads_cache
from harness.settings import left_out, settings_of, settings_table
from tests.support.model import embedded_tokenizer


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield


def composed(*overrides: str) -> Config:
    return typed(compose("config", overrides=list(overrides)))


def test_a_setting_takes_its_engine_and_changes_only_what_it_says() -> None:
    for axis, engines in settings_table().items():
        for engine, settings in engines.items():
            name, options = list(settings.items())[-1]
            plain = composed(f"backend={engine}").backend
            changed = composed(f"setting={engine}-{axis}-{name}").backend
            assert changed.name == engine
            assert {key for key, value in vars(changed).items() if value != vars(plain)[key]} == set(options)


def test_a_setting_changes_the_cache_or_the_weights_never_both() -> None:
    allowed = {"kv": {"kv_dtype", "kv_scheme", "kv"}, "weights": {"weight_dtype"}}
    for axis, engines in settings_table().items():
        for settings in engines.values():
            assert all(set(options) <= allowed[axis] for options in settings.values())
            assert len({str(options) for options in settings.values()}) == len(settings) >= 2


def test_every_cache_of_the_in_house_engine_can_be_held() -> None:
    defaults = OmegaConf.create((files("conf") / "backend" / "kvcompress.yaml").read_text())["kv"]
    held = [
        from_mapping(OmegaConf.to_container(OmegaConf.merge(defaults, options.get("kv", {}))))
        for options in settings_table()["kv"]["kvcompress"].values()
    ]
    assert len(set(held)) == len(held) >= 12
    assert held[0] == with_full_precision(held[0])  # what the others are compared with


def test_what_an_engine_cannot_do_here_is_left_out_and_said() -> None:
    assert settings_of("kv", ["openvino"]) == "openvino-kv-f16,openvino-kv-int8,openvino-kv-int4"
    assert left_out("kv", ["openvino", "kvcompress"]) == []
    assert "sglang" not in settings_of("kv", ["openvino", "sglang"])  # on a CPU there is nothing to compare
    (line,) = left_out("kv", ["sglang"])
    assert "sglang-kv-fp8" in line and "bf16" in line
    with pytest.raises(UsageError, match="No installed engine can change its kv"):
        settings_of("kv", ["sglang"])


@pytest.mark.parametrize(
    ("experiment", "workload", "tasks"),
    [
        ("kv_granularity", "chat", ("agreement", "reasoning")),
        ("weight_precision", "rag", ("rag", "recall")),
        ("kv_methods", "summarization", ("perplexity", "summary")),
    ],
)
def test_each_workload_is_judged_by_the_tasks_that_speak_of_it(
    experiment: str, workload: str, tasks: tuple[str, ...]
) -> None:
    config = composed(f"experiment={experiment}", f"workload={workload}")
    assert tuple(sorted(config.quality.asked())) == tasks


def test_what_only_a_gpu_takes_can_be_named() -> None:
    named = ("experiment=kv_granularity", "setting=vllm-kv-fp8", "backend.device=cuda")
    backend = composed(*named).backend
    assert (backend.name, backend.device, backend.kv_dtype) == ("vllm", "cuda", "fp8")
    assert "fp8" in make_backend(backend).capabilities().kv_dtypes


@pytest.mark.parametrize("workload", ["chat", "rag", "summarization"])
@pytest.mark.parametrize("experiment", ["kv_methods", "kv_granularity", "rag_tradeoff"])
def test_every_task_of_an_experiment_reads_the_cache_that_it_judges(experiment: str, workload: str) -> None:
    lossy = "backend.kv={evict:snapkv,budget:{fraction:0.5}}"
    config = composed(f"experiment={experiment}", f"workload={workload}", "backend=kvcompress", lossy)
    check_reads_cache(config.quality, make_backend(config.backend), embedded_tokenizer(), config.seed)
    assert engine_for_quality(config.quality, config.backend) == config.backend  # it starts only once
