"""Reading GGUF: geometry, tokenizer, and the dequantised copy that engines get.

Why a copy: OpenVINO GenAI reads Q4_1 files with wrong zero points (perplexity 23.66 where 19.58 is right); the
same weights written as F16 are read rightly. Dequantisation is gguf-py's own.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness.core.errors import ModelError
from harness.core.geometry import ModelGeometry

if TYPE_CHECKING:
    from gguf import GGUFReader

# Pre-tokenizers this module can rebuild; a wrong one changes token counts without any error.
_SUPPORTED_PRE_TOKENIZERS = ("smollm",)
_SPECIAL_TOKEN_TYPE = 3
_NOT_COPIED = ("general.architecture", "general.file_type", "general.quantization_version")


def open_gguf(path: Path) -> "GGUFReader":
    """Map a GGUF file; raises ModelError where it is none."""
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path} is not a readable GGUF file: {error}. Download it again.") from error


def field(reader: "GGUFReader", name: str, default: Any = None) -> Any:
    """A metadata value, or `default` where the file has none."""
    entry = reader.get_field(name)
    return default if entry is None else entry.contents()


def geometry_of(reader: "GGUFReader") -> ModelGeometry:
    """Sizes from the metadata of any llama-like architecture."""
    architecture = field(reader, "general.architecture")
    heads = field(reader, f"{architecture}.attention.head_count")
    width = field(reader, f"{architecture}.embedding_length")
    try:
        return ModelGeometry(
            layers=int(field(reader, f"{architecture}.block_count")),
            heads=int(heads),
            kv_heads=int(field(reader, f"{architecture}.attention.head_count_kv", heads)),
            head_dim=int(field(reader, f"{architecture}.attention.key_length", width // heads)),
            vocabulary=len(field(reader, "tokenizer.ggml.tokens")),
            context_length=int(field(reader, f"{architecture}.context_length")),
        )
    except TypeError as error:
        raise ModelError("The GGUF file lacks the sizes of a decoder-only transformer.") from error


def write_f16(reader: "GGUFReader", target: Path) -> None:
    """Write the same model with every matrix as F16 and every norm as F32, metadata and tokenizer unchanged."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(target, field(reader, "general.architecture"))
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name in _NOT_COPIED:
            continue
        kind = entry.types[0]
        writer.add_key_value(
            name,
            entry.contents(),
            kind,
            sub_type=entry.types[-1] if kind == gguf.GGUFValueType.ARRAY else None,
        )
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32 if values.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_tokenizer(reader: "GGUFReader", folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, rebuilt from the file's own fields.

    Byte-level BPE in which every digit is a token of its own (`tokenizer.ggml.pre = smollm`).
    Raises ModelError for any other kind of tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = field(reader, "tokenizer.ggml.model")
    pre = field(reader, "tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in _SUPPORTED_PRE_TOKENIZERS:
        raise ModelError(
            f"The tokenizer of this GGUF ({kind!r}, pre-tokenizer {pre!r}) cannot be rebuilt from the file alone. "
            "Put the model's tokenizer.json and tokenizer_config.json beside the GGUF file."
        )
    tokens: list[str] = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, types, strict=True)
            if token_type == _SPECIAL_TOKEN_TYPE
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": tokens[field(reader, "tokenizer.ggml.bos_token_id", 0)],
        "eos_token": tokens[field(reader, "tokenizer.ggml.eos_token_id", 0)],
        "chat_template": field(reader, "tokenizer.chat_template"),
    }
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps(config, option=orjson.OPT_INDENT_2))
