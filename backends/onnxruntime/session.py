"""An exported model in an ONNX Runtime session whose KV cache lives in a `KvPool`. The only module that imports it.

The attention operator reads past keys and values from the tensors it is given and writes the new ones behind them;
bound to the same memory, the cache grows in place. How much of a row is valid is told by the sum of its attention
mask, so rows of different lengths are one batch.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from backends.onnxruntime.kv_pool import KvPool
from backends.serving.engine import EngineConfig
from harness.core.errors import EngineError

try:
    import onnxruntime
except ImportError as error:
    raise EngineError(
        f"ONNX Runtime cannot be imported in this environment ({error}). "
        "Type: python -m harness.engines action=install engine=onnxruntime"
    ) from error

log = logging.getLogger("onnxruntime")
_STORED = {
    "f32": ("tensor(float)", np.float32),
    "int8": ("tensor(int8)", np.int8),
    "int4": ("tensor(uint8)", np.uint8),
}
_KEPT_BINDINGS = 64
_PROVIDER = "CPUExecutionProvider"


class BoundModel:
    """The model and its pool. vocabulary: columns of the logits."""

    def __init__(self, config: EngineConfig) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = config.threads
        options.inter_op_num_threads = 1
        # Threads do not spin between two steps: the cores are the HTTP side's then.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = onnxruntime.InferenceSession(
                str(config.model / "model.onnx"), options, providers=[_PROVIDER]
            )
        except Exception as error:  # its own family, without a common base that is exported
            raise EngineError(f"ONNX Runtime cannot load {config.model}: {error}") from error
        # A provider that cannot be had is replaced in silence.
        if (found := self._session.get_providers()[:1]) != [_PROVIDER]:
            raise EngineError(f"ONNX Runtime computes with {found}, not {_PROVIDER}.")
        # Nodes that nobody asked the result of (the vocabulary's logits of a prompt) are not computed.
        self._run_options = onnxruntime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True
        past = [i for i in self._session.get_inputs() if i.name.startswith("past_key_values.")]
        self._cached = [(i.name, i.name.replace("past_key_values", "present")) for i in past]
        wire, dtype = _STORED[config.kv_dtype]
        if {i.type for i in past} != {wire}:
            raise EngineError(f"{config.model} was not exported for {config.kv_dtype} keys and values.")
        _, heads, _, width = past[0].shape
        size = _head_size(config.model) if isinstance(width, str) else int(width)
        self.pool = KvPool(len(past), int(heads), size, dtype, config.kv_bytes)
        self._bindings: dict[tuple[int, int, int, bool], Any] = {}
        (logits,) = (o for o in self._session.get_outputs() if o.name == "logits")
        self.vocabulary = int(logits.shape[-1])
        log.info("ONNX Runtime %s: %d tokens of KV cache", onnxruntime.__version__, self.pool.capacity)

    def compute(
        self, first_row: int, ids: npt.NDArray[np.int64], lengths: Sequence[int], logits: bool
    ) -> npt.NDArray[np.float32] | None:
        """Feed `ids` [n, new] to rows first_row … first_row + n - 1, which hold `lengths` tokens before.

        Returns the logits [n, new, vocabulary], or None where they are not asked for (and not computed).
        """
        rows, new = ids.shape
        valid = np.array(lengths)[:, None] + new
        mask = (np.arange(valid.max()) < valid).astype(np.int64)
        binding = self._bound(first_row, rows, logits)
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", mask)
        out = None
        if logits:
            out = np.empty((rows, new, self.vocabulary), np.float32)
            binding.bind_output("logits", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        self._session.run_with_iobinding(binding, self._run_options)
        return out

    def _bound(self, first_row: int, rows: int, logits: bool) -> Any:
        """A binding of these rows of the pool; kept, since it takes most of a millisecond to make."""
        key = (first_row, rows, self.pool.stride, logits)
        if key not in self._bindings:
            if len(self._bindings) == _KEPT_BINDINGS:
                self._bindings.clear()
            binding = self._bindings[key] = self._session.io_binding()
            shape = self.pool.shape(rows)
            for (past, present), address in zip(self._cached, self.pool.addresses(first_row), strict=True):
                binding.bind_input(past, "cpu", 0, self.pool.dtype, shape, address)
                binding.bind_output(present, "cpu", 0, self.pool.dtype, shape, address)
        return self._bindings[key]


def _head_size(folder: Path) -> int:
    """The exported graph leaves it open; the file beside it tells."""
    try:
        config = orjson.loads((folder / "genai_config.json").read_bytes())
        return int(config["model"]["decoder"]["head_size"])
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{folder} has no usable genai_config.json: {error}.") from error
