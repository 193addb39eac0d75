"""What the command line says to wrong input: composed by the real Hydra, explained in one sentence."""

import pytest
from hydra import compose, initialize_config_module

from harness.app import check_flags, flags_first, with_default_experiment
from harness.config import SCHEMAS, register_schemas, typed
from harness.core.errors import UsageError
from harness.help import choices_of
from harness.usage_errors import explain


@pytest.fixture(scope="module", autouse=True)
def _hydra():
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        yield


def explained(*overrides: str) -> str:
    with pytest.raises(Exception) as raised:
        typed(compose("config", overrides=list(overrides)))
    if isinstance(raised.value, UsageError):
        return str(raised.value)
    return str(explain(raised.value))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("load.concurency=4", ["no key load.concurency", "Did you mean load.concurrency?"]),
        ("backend.kv_dtyp=f16", ["Did you mean backend.kv_dtype?"]),
        ("workload.corpus.pth=x", ["workload.corpus.pth", "Did you mean workload.corpus.path?"]),
        ("sed=1", ["no key sed", "Did you mean seed?"]),
        ("backend.kv_scheme=x", ["belongs to backend=onnxruntime", "leave it out"]),
        ("backend.kv.evict=h2o", ["belongs to backend=kvcompress", "leave it out"]),
        ("load.rates=[2]", ["has no load.rates", "load=sweep_rate"]),
        ("backend.extra_args=[--a=b]", ["cannot be read", "\"KEY=['--a=b']\""]),
        ("kv_dtype=f16", ["no key kv_dtype", "Did you mean backend.kv_dtype?"]),
        ("concurrency=2", ["Did you mean load.concurrency?"]),
        ("zzz=1", ["no key zzz", "seed"]),
        ("quality.perplexity.text=x", ["not asked for", "quality=perplexity"]),
        ("quality=[perplexity,rcall]", ["quality=rcall", "Did you mean quality=recall?"]),
        ("quality=[recall,recall]", ["quality= names a choice twice"]),
        ("quality=[recall] quality.recall.lengths=512", ["quality.recall.lengths=512", "a list in brackets"]),
        ("quality.chunks=3", ["Did you mean quality.chunk?"]),
        ("workload=rga", ["workload=rga", "Did you mean workload=rag?", "chat", "summarization"]),
        ("backend=nothing-like-it", ["Choices: ", "openvino", "endpoint"]),
        ("experiment=defalt", ["Did you mean experiment=default?"]),
        ("load.concurrency=many", ["load.concurrency=many", "a whole number"]),
        ("load.rate=fast", ["load.rate=fast", "a number"]),
        ("backend.prefix_cache=perhaps", ["backend.prefix_cache=perhaps", "true or false"]),
        ("seed=1.5", ["seed=1.5", "a whole number"]),
        ("repeats=0", ["repeats=0", "at least 1"]),
        ("seed=-1", ["seed=-1", "at least 0"]),
        ("results_dir=", ["results_dir", "empty"]),
        ("slo.ttft_ms=-1", ["slo.ttft_ms=-1", "above 0"]),
        ("rag", ["'rag'", "KEY=VALUE"]),
        ("results_dir=[", ["cannot be read"]),
    ],
)
def test_wrong_input_is_one_sentence_with_a_way_out(override: str, words: list[str]):
    message = explained(*override.split())
    for word in words:
        assert word in message
    assert "\n" not in message


def test_an_error_that_is_not_the_users_is_not_explained_away():
    with pytest.raises(ZeroDivisionError):
        explain(ZeroDivisionError())


def test_overrides_may_stand_before_flags():
    assert flags_first(["experiment=default", "-m", "seed=1,2"]) == ["-m", "experiment=default", "seed=1,2"]
    assert flags_first(["rag"]) == ["rag"]
    assert flags_first([]) == []


@pytest.mark.parametrize(
    ("flag", "words"), [("--halp", "--help"), ("--multi-run", "--multirun"), ("-x", "no flag -x")]
)
def test_a_flag_that_does_not_exist(flag: str, words: str):
    with pytest.raises(UsageError, match=words):
        check_flags([flag, "seed=1"])
    check_flags(["-m", "seed=1,2"])
    check_flags(["--cfg", "job", "seed=1"])


def test_what_is_shown_is_one_configuration():
    with pytest.raises(UsageError, match="Leave -m out"):
        check_flags(["-m", "--cfg", "job", "seed=1,2"])
    with pytest.raises(Exception) as raised:
        compose("config", overrides=["seed=1,2"])
    assert "put -m first" in str(explain(raised.value))
    assert "Name one of them" in str(explain(raised.value, showing=True))


def test_a_bare_call_runs_the_default_experiment():
    assert with_default_experiment([]) == ["experiment=default"]
    assert with_default_experiment(["results_dir=x"]) == ["experiment=default", "results_dir=x"]
    assert with_default_experiment(["seed=1"]) == ["seed=1"]
    assert with_default_experiment(["-m", "seed=1,2"]) == ["-m", "seed=1,2"]
    assert with_default_experiment(["--cfg", "job"]) == ["--cfg", "job"]


def test_how_to_evict_has_values_only_where_something_is_evicted():
    def eviction(*overrides: str):
        backend = vars(typed(compose("config", overrides=["backend=openvino", *overrides])).backend)
        return [backend[f"eviction_{key}"] for key in ("keep", "start", "recent", "scores")]

    assert eviction() == [None, None, None, None]
    assert eviction("backend.eviction_keep=256") == [256, 32, 128, "norm_sum"]
    assert eviction("backend.eviction_start=64") == [None, 64, None, None]


@pytest.mark.parametrize("workload", ["chat", "rag", "summarization", "file"])
@pytest.mark.parametrize("backend", ["openvino", "endpoint"])
def test_every_choice_composes_to_typed_options(workload: str, backend: str):
    config = typed(compose("config", overrides=[f"workload={workload}", f"backend={backend}"]))
    assert config.workload.name == workload
    assert config.backend.name == backend
    assert isinstance(config.load.concurrency, int)


@pytest.mark.parametrize("load", sorted(choices_of("load")))
@pytest.mark.parametrize("quality", ["none", "perplexity", "recall"])
def test_every_load_and_quality_composes(load: str, quality: str):
    config = typed(compose("config", overrides=[f"load={load}", f"quality={quality}", "slo=interactive"]))
    asked = () if quality == "none" else (quality,)
    assert (config.load.name, config.quality.asked(), config.slo.name) == (load, asked, "interactive")


def test_quality_tasks_can_be_taken_together():
    config = typed(compose("config", overrides=["quality=[perplexity,recall]", "quality.recall.trials=9"]))
    assert config.quality.asked() == ("perplexity", "recall")
    assert config.quality.recall is not None and config.quality.recall.trials == 9
    tasks = sorted(SCHEMAS["quality"])
    every = typed(compose("config", overrides=[f"quality=[{','.join(tasks)}]"])).quality
    assert sorted(every.asked()) == tasks


@pytest.mark.parametrize(
    ("overrides", "drawn"),
    [
        (["workload=rag", "workload.requests=6", "load.requests=40"], 40),
        (["workload=rag", "workload.requests=6", "load.requests=3"], 6),
        (["workload=rag", "workload.requests=6"], 6),
        (["workload=file", "workload.requests=6", "load.requests=40"], 6),
    ],
)
def test_as_many_requests_are_drawn_as_shall_be_measured(overrides: list[str], drawn: int):
    assert typed(compose("config", overrides=overrides)).workload.requests == drawn
