from harness.engines.catalogue import offers
from harness.engines.locking import changes, for_linux


def test_conditions_are_kept_only_where_linux_has_both_answers() -> None:
    given = [
        "always==1",
        "windows==1 ; sys_platform == 'win32'",
        "linux==1 ; sys_platform == 'linux'",
        "cpython==1 ; platform_python_implementation != 'PyPy'",
        "mainframe==1 ; platform_machine == 's390x'",
        "intel==1 ; platform_machine == 'x86_64'",
        "older==1 ; python_full_version < '3.12'",
        "local==1+cpu",
    ]
    assert list(for_linux(given)) == [
        "always==1",
        "linux==1",
        "cpython==1",
        "intel==1 ; platform_machine == 'x86_64'",
        "older==1 ; python_full_version < '3.12'",
        "local==1+cpu",
    ]


def test_locks_are_exact_and_leave_out_what_breaks_the_engine() -> None:
    for recipe in {recipe for offer in offers() for recipe in (offer.recipe, *offer.converters.values())}:
        lines = recipe.requirements()
        assert all("==" in line.split(";")[0] for line in lines)
        names = {line.split("==")[0].lower().replace("_", "-") for line in lines}
        assert not names & set(recipe.uninstall)
        assert not lines or {package.lower() for package in recipe.packages} <= names, recipe.name


def test_changes_of_a_lock_are_told_whatever_way_a_name_is_written() -> None:
    assert changes([], ["new==1"]) == "new"
    assert changes(["Some_Name==1", "b==1"], ["some-name==1", "b==1"]) == ""
    assert changes(["Some_Name==1", "b==1"], ["some-name==2", "b==1", "c==3"]) == (
        "out some-name==1; in c==3, some-name==2"
    )
