from hydra import compose, initialize_config_module

from harness.config import register_schemas
from harness.engines.installed import installed_engines


def test_the_engines_experiment_sweeps_over_what_is_installed():
    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        composed = compose("config", overrides=["experiment=engines"], return_hydra_config=True)
    params = composed.hydra.sweeper.params
    assert params.backend.split(",") == list(installed_engines())
    assert "openvino" in installed_engines()  # the harness's own environment has it
    assert "endpoint" not in installed_engines()
    assert composed.quality.agreement.tokens == 64
