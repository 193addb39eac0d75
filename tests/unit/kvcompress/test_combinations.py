"""What cannot be held together is refused before an engine starts, and before a request reaches it: in one place."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.kvcompress.combinations import Holder, check_together
from backends.kvcompress.policies import POLICIES, READ_NO_QUERIES, policy
from backends.kvcompress.requested import check_kv
from backends.serving.engine import EngineConfig
from harness.core.errors import UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import kvcompress
from tests.support.kv import spec
from tests.support.kv_stores import DIM, paged_store, torch_store

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_NOT_TOGETHER: list[tuple[dict[str, Any], str]] = [
    (
        {"evict": "h2o", "budget": {"tokens": 9}, "reindex": True},
        "reindex=true goes with policies that read no",
    ),
    ({"evict": "knorm", "budget": {"bytes": 10**6}, "quant": "int4", "granularity": "kivi"}, "leave holes"),
    ({"quant": "int4", "granularity": "group", "group": 48}, "group=48 does not divide the 64 values"),
    ({"quant": "int4", "granularity": "group", "group": 4}, "group=4 is not a multiple of 8"),
    ({"share": "minicache"}, "share=minicache is not held by the compiled kernel. Use backend.kernel=torch"),
]


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.safetensors").touch()
    return ModelFiles("tiny", tmp_path, tmp_path, _GEOMETRY, "0" * 64)


@pytest.mark.parametrize(("kv", "words"), _NOT_TOGETHER)
def test_before_the_start_and_before_a_streams_headers(
    model: ModelFiles, kv: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        kvcompress(kv=kv).check(model)
    launched = kvcompress().launch(model, 1234, 2)
    assert launched is not None
    options = json.loads(launched.argv[launched.argv.index("--options") + 1])
    with pytest.raises(UsageError, match=words):  # what the HTTP process asks before it answers at all
        check_kv(EngineConfig.from_options(Path("/m"), (2,), options), kv)


def test_which_policies_read_no_queries_is_what_the_policies_say() -> None:
    read_none = [name for name in POLICIES if not policy(name).window and policy(name).attention is None]
    assert sorted(read_none) == sorted(READ_NO_QUERIES)


@pytest.mark.parametrize(
    ("changes", "compiled"),
    [
        ({"quant": "int4", "granularity": "group", "group": 4}, True),
        ({"quant": "int4", "granularity": "group", "group": 5}, False),
        ({"share": "minicache"}, True),
        ({"share": "minicache", "evict": "knorm", "budget": {"tokens": 9}}, False),
    ],
)
def test_a_store_holds_nothing_else_than_what_is_told_before(changes: dict[str, Any], compiled: bool) -> None:
    store = (paged_store if compiled else torch_store)()
    with pytest.raises(UsageError) as told:
        check_together(spec(**changes), Holder(DIM, compiled))
    with pytest.raises(UsageError) as refused:
        store.open(spec(**changes))
    assert str(told.value) == str(refused.value)


def test_what_is_not_packed_needs_no_groups_and_no_rotation() -> None:
    check_together(spec(rotate=True, granularity="group", group=7), Holder(80, compiled=True))
