"""Keys that never reach a record: in an engine's command line and in what a server repeats."""

import pytest
from hydra import compose, initialize_config_module

from harness.config import register_schemas, shown_config, typed
from harness.core.secrets import without_secrets


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key=abc"], ["--api-key=(hidden)"]),
        (["--api-key", "abc", "--port", "1"], ["--api-key", "(hidden)", "--port", "1"]),
        (["HF_TOKEN=abc", "vllm", "serve"], ["HF_TOKEN=(hidden)", "vllm", "serve"]),
        (["--hf.token=a=b"], ["--hf.token=(hidden)"]),
        (
            ["--secret-name=abc", "--db_password", "abc"],
            ["--secret-name=(hidden)", "--db_password", "(hidden)"],
        ),
        (["--API-KEY=abc"], ["--API-KEY=(hidden)"]),
        (["--api-key", "--port", "1"], ["--api-key", "--port", "1"]),
    ],
)
def test_values_of_secrets_are_hidden(arguments: list[str], shown: list[str]) -> None:
    assert without_secrets(arguments) == shown


@pytest.mark.parametrize(
    "argument",
    [
        "--max-tokens=8",
        "--max-num-batched-tokens=8192",
        "--tokenizer=x",
        "--ssl-keyfile=k.pem",
        "serve",
        "",
        "-",
    ],
)
def test_other_arguments_stay(argument: str) -> None:
    assert without_secrets([argument, "next"]) == [argument, "next"]


def test_a_configuration_is_recorded_without_them_and_used_with_them() -> None:
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        config = typed(compose("config", overrides=["backend.extra_args=['--api-key=abc','--more']"]))
    assert shown_config(config)["backend"]["extra_args"] == ["--api-key=(hidden)", "--more"]
    assert config.backend.extra_args == ["--api-key=abc", "--more"]
