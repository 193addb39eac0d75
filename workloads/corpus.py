"""Where text comes from: documents with names, recorded conversations, and a hash over all of it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import UsageError
from workloads.options import CorpusOptions

_CHOICES = ("pydoc", "folder", "jsonl", "parquet", "dataset", "sharegpt", "messages")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what it is called."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of a recorded conversation."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in a fixed order; conversations, where the source holds any, are documents too."""

    name: str
    documents: tuple[Document, ...]
    conversations: tuple[tuple[Exchange, ...], ...] = ()

    def sha256(self) -> str:
        """Hash over names and texts: equal hashes mean the same text."""
        digest = hashlib.sha256()
        for document in self.documents:
            for part in (document.name, document.text):
                data = part.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()


def read_corpus(options: CorpusOptions) -> Corpus:
    """Read the corpus the user named. Raises UsageError where it is missing, damaged or empty."""
    conversations: tuple[tuple[Exchange, ...], ...] = ()
    if options.name in ("sharegpt", "messages"):
        from workloads.conversations import document_of, read_messages, read_sharegpt

        read = read_sharegpt if options.name == "sharegpt" else read_messages
        conversations = read(_existing(options), options.max_characters)
        documents = [document_of(i, exchanges) for i, exchanges in enumerate(conversations)]
    else:
        documents = list(_limited(_documents(options), options.max_characters))
    documents = [document for document in documents if document.text.strip()]
    if not documents:
        raise UsageError(
            f"{_place(options)} holds no text. Point workload.corpus.path at text, or use "
            "workload.corpus.name=pydoc."
        )
    return Corpus(options.name, tuple(documents), conversations)


def _documents(options: CorpusOptions) -> Iterator[Document]:
    match options.name:
        case "pydoc":
            from pydoc_data.topics import topics

            return (Document(name, topics[name]) for name in sorted(topics))
        case "folder":
            return _folder(_existing(options))
        case "jsonl":
            return _jsonl(_existing(options), options.column)
        case "parquet":
            return _parquet(_existing(options), options.column)
        case "dataset":
            return _dataset(options)
    raise UsageError(f"workload.corpus.name={options.name} is unknown. Choose one of {', '.join(_CHOICES)}.")


def _place(options: CorpusOptions) -> str:
    return f"The corpus {options.path or options.dataset or options.name}"


def _existing(options: CorpusOptions) -> Path:
    if not options.path:
        raise UsageError(f"workload.corpus.name={options.name} needs workload.corpus.path.")
    path = Path(options.path).expanduser()
    if options.name == "folder" and not path.is_dir():
        raise UsageError(f"workload.corpus.path={path} is no folder. Give a folder of .txt or .md files.")
    if options.name != "folder" and not path.is_file():
        raise UsageError(f"workload.corpus.path={path} is no file. Give a {options.name} file.")
    return path


def _limited(documents: Iterator[Document], max_characters: int) -> Iterator[Document]:
    left = max_characters
    for document in documents:
        if left <= 0:
            return
        yield Document(document.name, document.text[:left])
        left -= len(document.text)


def read_text(path: Path) -> str:
    """A UTF-8 text file, with line ends as `\\n`. Raises UsageError where it is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). Convert it first."
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, value) of a JSONL file, without blank lines. Raises UsageError that names a bad line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    yield number, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise UsageError(f"{path} line {number}: no valid JSON ({error}).") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def _folder(folder: Path) -> Iterator[Document]:
    paths = [path for path in folder.rglob("*") if path.suffix.lower() in (".txt", ".md") and path.is_file()]
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in paths):
        yield Document(name, read_text(path))


def _jsonl(path: Path, column: str) -> Iterator[Document]:
    for number, record in json_lines(path):
        text = record.get(column) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise UsageError(
                f"{path} line {number}: no text under the key {column!r}. Name the right one in "
                "workload.corpus.column."
            )
        yield Document(f"line {number}", text)


def _parquet(path: Path, column: str) -> Iterator[Document]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path} is no readable Parquet file: {error}.") from error
    with file:
        if column not in file.schema_arrow.names:
            known = ", ".join(file.schema_arrow.names)
            raise UsageError(
                f"{path} has no column {column!r}. Set workload.corpus.column to one of: {known}."
            )
        row = 0
        for batch in file.iter_batches(columns=[column]):
            for value in batch.column(0).to_pylist():
                row += 1
                if isinstance(value, str):  # a null is a row without text
                    yield Document(f"row {row}", value)


def _dataset(options: CorpusOptions) -> Iterator[Document]:
    if not options.dataset:
        raise UsageError("workload.corpus.name=dataset needs workload.corpus.dataset=ORG/NAME.")
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UsageError(
            "workload.corpus.name=dataset needs the package datasets: pip install datasets"
        ) from error
    try:
        rows = load_dataset(
            options.dataset, options.subset, split=options.split, revision=options.revision, streaming=True
        )
        for number, row in enumerate(rows):
            text = row.get(options.column)
            if not isinstance(text, str):
                raise UsageError(
                    f"{options.dataset} has no text column {options.column!r}. "
                    f"Set workload.corpus.column to one of: {', '.join(row)}."
                )
            yield Document(f"row {number}", text)
    except UsageError:
        raise
    except Exception as error:  # the hub's client raises a wide family
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"Could not read the dataset {options.dataset}: {reason} Offline, use workload.corpus.name=pydoc."
        ) from error
