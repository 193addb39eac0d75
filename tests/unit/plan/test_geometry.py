import json
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.plan.choices import PLAN
from harness.plan.composing import geometry_from, options_from
from harness.plan.config_json import geometry_of, read_config
from harness.plan.geometry import Geometry

TINY = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 10,
    "max_position_embeddings": 64,
}


def preset(name: str, *more: str) -> Geometry:
    return geometry_from(options_from([f"model={name}", *more]).model)


# What Hugging Face transformers 5 builds from the same config.json. DeepSeek-V3's README: 671 B, 36.6 B active.
COUNTED = {
    "mistral-7b": 7_248_023_552,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-3-27b": 27_009_346_304,
    "deepseek-v3": 671_026_404_352,
    "smollm2-135m": 134_515_008,
}


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_of_an_independent_count(name: str):
    assert preset(name).parameters == COUNTED[name]


def test_every_preset_is_read_and_says_its_source():
    for name in set(PLAN.choices("model")) - {"config"}:
        options = options_from([f"model={name}"]).model
        assert options.source.startswith("https://")
        assert geometry_from(options).layers > 1


def test_mixtures_of_experts_pass_a_token_through_few():
    deepseek = preset("deepseek-v3")
    assert round(deepseek.active_parameters / 1e9, 1) == 36.6
    assert round(preset("qwen3-30b-a3b").active_parameters / 1e9) == 3


def test_kv_values_of_grouped_multi_and_single_heads_and_latents():
    assert preset("mistral-7b").kv_values == 2 * 8 * 128
    assert preset("mistral-7b", "model.config.num_key_value_heads=32").kv_values == 2 * 32 * 128
    assert preset("mistral-7b", "model.config.num_key_value_heads=1").kv_values == 2 * 128
    assert preset("deepseek-v3").kv_values == 512 + 64


def test_gemma_has_ten_layers_that_see_everything():
    gemma = preset("gemma-3-27b")
    assert (gemma.full_layers, gemma.window_layers, gemma.window) == (10, 52, 1024)


def test_parameters_by_hand():
    g = geometry_of(TINY, "tiny")
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8  # q, k and v, o with head_dim 2
    assert g.parameters == 2 * (attention + 3 * 8 * 16 + 2 * 8) + 2 * 10 * 8 + 8


def test_layer_types_count_the_windows():
    kinds = ["sliding_attention", "full_attention"]
    assert geometry_of(TINY | {"sliding_window": 4, "layer_types": kinds}, "tiny").window_layers == 1
    assert geometry_of(TINY | {"sliding_window": 4, "model_type": "mistral"}, "tiny").window_layers == 2
    off = TINY | {"model_type": "qwen2", "sliding_window": 4, "use_sliding_window": False}
    assert geometry_of(off, "tiny").window is None


def test_the_language_part_of_a_model_with_images():
    config = {
        "model_type": "gemma3",
        "text_config": TINY | {"model_type": "gemma3_text", "sliding_window": 8},
    }
    g = geometry_of(config, "tiny")
    assert g.tied_embeddings
    assert g.norms == 4


def test_mixtral_and_deepseek_spell_their_experts_differently():
    mixtral = geometry_of(
        TINY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, "m"
    )
    assert mixtral.experts is not None
    assert (mixtral.experts.routed, mixtral.experts.active, mixtral.experts.layers) == (4, 2, 2)
    experts = preset("deepseek-v3").experts
    assert experts is not None
    assert (experts.shared, experts.layers) == (1, 58)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "rwkv"}, "family 'rwkv'"),
        ({"model_type": None}, "family None"),
        ({"num_hidden_layers": None}, "lacks num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "cannot share 3 KV heads"),
        ({"hidden_size": 9}, "does not divide"),
        ({"sliding_window": 4, "layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
        ({"num_local_experts": 2, "num_experts_per_tok": 3}, "3 experts per token"),
    ],
)
def test_bad_configs_are_refused_not_guessed(change: dict[str, object], words: str):
    with pytest.raises(UsageError, match=words):
        geometry_of(TINY | change, "tiny")


def test_a_config_json_from_a_folder(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert read_config(tmp_path) == read_config(tmp_path / "config.json") == TINY
    assert preset("config", f"model.path={tmp_path}").layers == 2
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="no JSON"):
        read_config(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "elsewhere")
