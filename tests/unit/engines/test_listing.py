import json

import pytest

from harness.engines.catalogue import offers
from harness.engines.listing import entry, lines

OFFERS = offers()


@pytest.mark.parametrize("width", [40, 80, 110])
def test_the_list_fits_the_terminal_but_for_commands_and_paths(width: int) -> None:
    text = list(lines(OFFERS, width))
    for line in text:
        whole = line.strip().startswith(("python -m", "/")) or "not installed" in line
        assert whole or len(line) <= width, line
    assert all(offer.shown in "\n".join(text) for offer in OFFERS)


def test_every_caveat_and_dtype_is_told() -> None:
    for offer in OFFERS:
        text = " ".join(line.strip() for line in lines([offer], 110))
        for words in (*offer.abilities.caveats, *offer.abilities.kv_dtypes, *offer.abilities.dtypes):
            assert words in text
        assert ("(kv in its body)" in text) == offer.abilities.request_kv == (offer.engine == "kvcompress")


def test_the_list_for_programs_says_the_same() -> None:
    for offer in OFFERS:
        told = json.loads(json.dumps(entry(offer)))
        assert (told["engine"], told["device"]) == (offer.engine, offer.device)
        assert tuple(told["kv_dtypes"]) == offer.abilities.kv_dtypes
        assert told["installed"] == (told["where"] is not None) == bool(told["versions"])
