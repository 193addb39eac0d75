import pytest

from harness.core.errors import UsageError
from harness.engines.__main__ import HELP, main, parse
from harness.engines.catalogue import default_offer, engine_names, offers


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vllm"], "'vllm' is not understood: write key=value"),
        (["engine="], "'engine=' is not understood"),
        (["motor=vllm"], r"'motor' is no key of this command.*engine, device"),
        (["action=instal"], r"action=instal is unknown: choose one of list, install"),
        (["action=install"], r"action=install needs engine=NAME"),
        (["action=remove", "old=true"], r"action=remove needs engine=NAME"),
        (["with=export"], r"with= belongs to action=install, not to action=list"),
        (["action=doctor", "format=json"], "format= belongs to action=list"),
        (["device=cuda"], "device= belongs to action=install or remove or lock, not to action=list"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(arguments)


def test_a_whole_command_line_is_understood() -> None:
    request = parse(["action=install", "engine=vllm", "device=cuda", "with=export,more", "python=/p"])
    assert (request.action, request.engine, request.device) == ("install", "vllm", "cuda")
    assert (request.converters, request.python) == (["export", "more"], "/p")
    assert parse([]).action == "list"


def test_engines_and_devices_that_there_are_not_are_named_with_the_choices() -> None:
    with pytest.raises(UsageError, match=r"There is no engine endpoint\. Choose one of .*openvino"):
        offers("endpoint")
    with pytest.raises(UsageError, match=r"openvino does not run on cuda\. Choose cpu or gpu"):
        offers("openvino", "cuda")


def test_every_engine_is_offered_on_each_of_its_devices_with_what_it_can_do_there() -> None:
    found = offers()
    assert {offer.engine for offer in found} == set(engine_names())
    for offer in found:
        assert offer.abilities.dtypes, offer
        assert offer.abilities.kv_dtypes, offer
        assert offer.recipe.imports, offer
        assert offer.recipe.wanted.is_file(), (
            f"{offer.recipe.wanted} says what {offer.recipe.name} is made of"
        )
        assert offer.recipe.gpu == (offer.device == "cuda"), offer
    assert default_offer("openvino", None).device == "cpu"
    assert default_offer("openvino", "gpu").device == "gpu"


def test_help_and_errors_and_their_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == HELP
    assert all(len(line) <= 100 for line in HELP.splitlines())
    assert main(["action=list", "engine=vlm"]) == 2
    assert "There is no engine vlm" in capsys.readouterr().err
