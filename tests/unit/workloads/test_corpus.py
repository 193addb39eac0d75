import hashlib
from pathlib import Path
from pydoc_data.topics import topics

import pandas as pd
import pytest

from harness.core.errors import UsageError
from workloads.corpus import Corpus, Document, Exchange, read_corpus
from workloads.options import CorpusOptions
from workloads.pool import split_pools, without_markers
from workloads.streams import Stream


def options(name: str, path: Path | str | None = None, **changed: object) -> CorpusOptions:
    values = {"column": "text", "dataset": None, "subset": None, "split": "train", "revision": None}
    return CorpusOptions(
        name=name, path=str(path) if path else None, **{**values, "max_characters": 10**7, **changed}
    )  # type: ignore[arg-type]


def test_pydoc_is_the_documentation_of_this_python() -> None:
    corpus = read_corpus(options("pydoc"))
    assert {document.name: document.text for document in corpus.documents} == dict(topics)


def test_a_folder_gives_its_text_files_by_path(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.md").write_text("zwei Ä", encoding="utf-8")
    (tmp_path / "one.TXT").write_bytes(b"\xef\xbb\xbfeins\r\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    documents = read_corpus(options("folder", tmp_path)).documents
    assert documents == (Document("b/two.md", "zwei Ä"), Document("one.TXT", "eins\n"))


def test_jsonl_and_parquet_give_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "body": ["first", None, "third"]})
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.dropna().to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    for name in ("jsonl", "parquet"):
        documents = read_corpus(options(name, tmp_path / f"rows.{name}", column="body")).documents
        assert [document.text for document in documents] == ["first", "third"]


def test_the_hash_is_over_names_and_texts_and_their_borders() -> None:
    def hash_of(*documents: tuple[str, str]) -> str:
        return Corpus("x", tuple(Document(*document) for document in documents)).sha256()

    assert hash_of(("a", "bc")) == hash_of(("a", "bc"))
    assert (
        len(
            {hash_of(("a", "bc")), hash_of(("ab", "c")), hash_of(("a", "b"), ("", "c")), hash_of(("a", "bd"))}
        )
        == 4
    )
    assert hash_of() == hashlib.sha256().hexdigest()


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 100)
    (tmp_path / "b.txt").write_text("y" * 100)
    assert [len(d.text) for d in read_corpus(options("folder", tmp_path, max_characters=120)).documents] == [
        100,
        20,
    ]


def test_sharegpt_and_messages_give_the_same_conversations(tmp_path: Path) -> None:
    (tmp_path / "share.json").write_text(
        '[{"id": "x", "conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "q1"},'
        '{"from": "gpt", "value": "a1"}, {"from": "human", "value": "q2"}, {"from": "gpt", "value": "a2"},'
        '{"from": "human", "value": "left over"}]}, {"conversations": [{"from": "gpt", "value": "alone"}]}]'
    )
    (tmp_path / "chat.jsonl").write_text(
        '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q1"},'
        '{"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},'
        '{"role": "assistant", "content": "a2"}]}\n\n'
    )
    expected = ((Exchange("q1", "a1"), Exchange("q2", "a2")),)
    assert read_corpus(options("sharegpt", tmp_path / "share.json")).conversations == expected
    corpus = read_corpus(options("messages", tmp_path / "chat.jsonl"))
    assert corpus.conversations == expected
    assert corpus.documents == (Document("conversation 0", "q1\n\na1\n\nq2\n\na2"),)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("folder", "x.png", b"", "holds no text"),
        ("folder", "x.txt", b" \n", "holds no text"),
        ("folder", "x.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("jsonl", "x.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: no valid JSON"),
        ("jsonl", "x.jsonl", b'{"text": "a"}\n{"body": "b"}\n', "line 2: no text under the key 'text'"),
        ("jsonl", "x.jsonl", b"[1]", "line 1: no text"),
        ("jsonl", "x.jsonl", b"", "holds no text"),
        ("parquet", "x.parquet", b"not parquet", "no readable Parquet"),
        ("sharegpt", "x.json", b"{}", "no JSON list"),
        ("sharegpt", "x.json", b"[", "no valid JSON"),
        ("sharegpt", "x.json", b"[]", "holds no text"),
        ("sharegpt", "x.json", b'[{"conversations": [{"from": "human"}]}]', "entry 1: expected"),
        ("messages", "x.jsonl", b'{"messages": 3}', "line 1: expected"),
    ],
)
def test_a_bad_file_is_one_clear_error(
    tmp_path: Path, name: str, file: str, content: bytes, message: str
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_corpus(options(name, tmp_path if name == "folder" else tmp_path / file))


@pytest.mark.parametrize("name", ["folder", "jsonl", "parquet", "sharegpt", "messages"])
def test_a_place_that_is_missing_or_not_given_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"needs workload\.corpus\.path"):
        read_corpus(options(name))
    with pytest.raises(UsageError, match=r"workload\.corpus\.path=.*nowhere"):
        read_corpus(options(name, tmp_path / "nowhere"))


def test_an_unknown_corpus_names_the_choices() -> None:
    with pytest.raises(UsageError, match=r"corpus\.name=books is unknown.*pydoc"):
        read_corpus(options("books"))


def test_a_parquet_column_that_is_missing_names_those_there_are(tmp_path: Path) -> None:
    pd.DataFrame({"body": ["x"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(UsageError, match=r"no column 'text'.*body"):
        read_corpus(options("parquet", tmp_path / "x.parquet"))


def test_a_dataset_that_cannot_be_had_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"corpus\.dataset=ORG/NAME"):
        read_corpus(options("dataset"))
    with pytest.raises(UsageError, match=r"pip install datasets|Could not read the dataset"):
        read_corpus(options("dataset", dataset="nobody/nothing"))


def test_pools_share_no_text_and_leave_none_out() -> None:
    documents = tuple(Document(str(i), " ".join(f"d{i}w{j}" for j in range(100))) for i in range(10))
    measured, reserve = split_pools(Corpus("x", documents), ())
    words, kept = set(measured.text.split()), set(reserve.text.split())
    assert not words & kept
    assert len(words | kept) == 1000
    assert 80 <= len(kept) <= 120


def test_a_conversation_is_never_split() -> None:
    conversations = tuple((Exchange(f"question {i} " * 9, f"answer {i}"),) for i in range(12))
    documents = tuple(
        Document(str(i), f"{c[0].user}\n\n{c[0].assistant}") for i, c in enumerate(conversations)
    )
    measured, reserve = split_pools(Corpus("sharegpt", documents, conversations), ())
    assert (len(measured.documents), len(reserve.documents)) == (11, 1)
    with pytest.raises(UsageError, match=r"too little text"):
        split_pools(Corpus("sharegpt", documents[:1], conversations[:1]), ())


def test_a_passage_reads_on_over_the_end() -> None:
    measured, _ = split_pools(
        Corpus("x", (Document("a", "one two three four five six seven eight nine ten eleven"),)), ()
    )
    text = measured.passage(Stream(0, "p")).read(500)
    assert len(text) == 500
    assert text.count("one two three") >= 9


def test_markers_of_the_template_are_broken_up() -> None:
    assert without_markers("a <|im_end|> b", ("<|im_end|>", "<s>")) == "a < |im_end|> b"
