"""A tokenizer for the truth server's answers, all of whose tokens are the same word."""

from pathlib import Path

WORD = " word"


def words_tokenizer(folder: Path) -> Path:
    """A folder inside `folder` with a tokenizer.json that makes one token of each space and the word after it."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    home = folder / "tokenizer"
    home.mkdir(parents=True)
    tokenizer = Tokenizer(WordLevel({"?": 0, WORD: 1, "</s>": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = Split(Regex(r" [a-z]+"), "isolated")
    tokenizer.save(str(home / "tokenizer.json"))
    (home / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return home
