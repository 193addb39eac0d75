"""The one tokenizer of a run: text to ids, ids to text, and the model's own chat template.

Ids go to the engines, so whatever tokenizer an engine has does not count; this one does.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from tokenizers import Tokenizer as FastTokenizer

from harness.core.errors import ModelError

Message = dict[str, str]

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "config.json",
)


class Tokenizer:
    """A `tokenizers` tokenizer and a chat template in Jinja, as models ship them.

    eos_ids: ids at which generation stops unless told to ignore them; the tokenizer's own end token first.
    """

    def __init__(
        self, fast: FastTokenizer, chat_template: str | None, special: dict[str, str], eos_ids: Sequence[int]
    ) -> None:
        self._fast = fast
        self._special = special
        self.eos_ids = tuple(eos_ids)
        self._template: jinja2.Template | None = None
        if chat_template:
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            environment.globals["raise_exception"] = _raise_template_error
            environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
            self._template = environment.from_string(chat_template)

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read `tokenizer.json` and `tokenizer_config.json` in the Hugging Face layout.

        Of `generation_config.json`, else of `config.json`, the end tokens: a model may have several, of which the
        tokenizer names one. Files that have not changed are read once: the runs of a sweep share a model, and a
        large vocabulary takes half a second.
        """
        return _read_once(folder.resolve(), tuple(_stamp(folder / name) for name in _FILES))

    @classmethod
    def _read(cls, folder: Path) -> "Tokenizer":
        try:
            fast = FastTokenizer.from_file(str(folder / "tokenizer.json"))
            config = _json_of(folder / "tokenizer_config.json")
            ends = _end_ids(folder)
        except Exception as error:  # `tokenizers` raises bare Exception
            raise ModelError(f"No usable tokenizer.json in {folder}: {error}.") from error
        template = config.get("chat_template")
        if template is None and (folder / "chat_template.jinja").is_file():
            template = (folder / "chat_template.jinja").read_text()
        special = {name: _content(config[name]) for name in ("bos_token", "eos_token") if config.get(name)}
        own = fast.token_to_id(special["eos_token"]) if "eos_token" in special else None
        eos_ids = dict.fromkeys([*([] if own is None else [own]), *ends])
        return cls(fast, template, special, tuple(eos_ids))

    @property
    def fast(self) -> FastTokenizer:
        """The underlying tokenizer, for decoding one token at a time."""
        return self._fast

    @property
    def vocabulary(self) -> int:
        """Number of distinct token ids."""
        return self._fast.get_vocab_size()

    @property
    def special_texts(self) -> tuple[str, ...]:
        """The spellings that `encode` takes for special tokens, longest first (e.g. the end-of-turn marker)."""
        added = self._fast.get_added_tokens_decoder().values()
        return tuple(sorted((token.content for token in added if token.special), key=lambda t: (-len(t), t)))

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as it stands; markers of special tokens in it are recognised, none are added."""
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of `text`, and for each the half-open range of characters it came from."""
        encoding = self._fast.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens spelled out."""
        return self._fast.decode(list(ids), skip_special_tokens=False)

    def only_token(self, text: str) -> int | None:
        """The id of the one token that decodes to `text` by itself; None where there is none, or several do."""
        return self._by_text.get(text)

    @cached_property
    def _by_text(self) -> dict[str, int]:
        texts = self._fast.decode_batch(
            [[token] for token in range(self.vocabulary)], skip_special_tokens=False
        )
        shared = Counter(texts)
        return {text: token for token, text in enumerate(texts) if shared[text] == 1}

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The prompt text of a conversation by the model's chat template (ready for an answer by default)."""
        if self._template is None:
            raise ModelError(
                "This model has no chat template, so messages cannot become a prompt. Choose an instruct model."
            )
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=add_generation_prompt, **self._special
            )
        except jinja2.TemplateError as error:
            raise ModelError(f"The model's chat template refuses these messages: {error}.") from error


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes with a file's content."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _read_once(folder: Path, _stamps: tuple[tuple[int, int] | None, ...]) -> Tokenizer:
    return Tokenizer._read(folder)


def _json_of(path: Path) -> dict[str, Any]:
    import orjson

    content: dict[str, Any] = orjson.loads(path.read_bytes()) if path.is_file() else {}
    return content


def _end_ids(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        ends: int | list[int] | None = _json_of(folder / name).get("eos_token_id")
        if ends is not None:
            return ends if isinstance(ends, list) else [ends]
    return []


def _content(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else str(value["content"])


def _raise_template_error(message: str) -> None:
    raise jinja2.TemplateError(message)
