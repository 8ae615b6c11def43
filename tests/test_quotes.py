"""Settings that are names of files take any name, as the shell hands it over."""

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from trip_jax.cli.quotes import lists, quoted, texts
from trip_jax.settings.errors import InvalidSetting

NAMES = [
    *(
        "a b/c",
        "lr=0.1,seed=3/x",
        "lr=0.1/x",
        "grün/x",
        "数据/x",
        "C:\\data\\x",
        "C:\\dätä\\",
        "it's/x",
    ),
    *(
        "a(1)/x",
        "a[1]/x",
        "[x]",
        "a#1/x",
        "a{b}/x",
        "{a:1}",
        "$HOME/x",
        "a'b\"c/x",
        "ü\\'",
        "x,y/z",
    ),
    *("a&b", "100%/x", "1e3", "1_000", "007", "true", "-x", "a=b=c", "*", "a${b", "choice(1,2)"),
    *("glob(*)", "x~", "a:b"),
]


def read(argument: str) -> Any:
    """What the program gets of an argument."""
    value = OverridesParser.create().parse_override(argument).value()
    return OmegaConf.to_container(OmegaConf.create({"value": value}), resolve=True)["value"]  # type: ignore[index, call-overload]


def test_settings_that_are_texts_are_found_in_the_schema() -> None:
    assert {"participation.file", "schedule.file", "resume"} <= texts()
    assert {"topology.files"} <= lists()
    assert not {"topology.kind", "contribution.utility", "precision", "devices"} & texts()


@pytest.mark.parametrize("value", NAMES)
def test_a_name_of_any_letters_is_taken_as_it_is(value: str) -> None:
    for setting in ("hydra.run.dir", "hydra.sweep.dir", *sorted(texts())):
        assert str(read(quoted(f"{setting}={value}"))) == value
    assert read(quoted(f"hydra.sweep.dir={value}", sweep=True)) == read(quoted(f"resume={value}"))
    if "," not in value:
        for setting in lists():
            assert read(quoted(f"{setting}=[{value},ü]")) == [value, "ü"]


@pytest.mark.parametrize("value", ["null", "'a,b'", '"ü"', "${oc.env:HOME}/x", "a\\,b"])
def test_what_hydra_reads_otherwise_stays(value: str) -> None:
    assert quoted(f"participation.file={value}") == f"participation.file={value}"


def test_commas_separate_names_unless_a_file_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(quoted("topology.files=[grün, =1.txt]")) == ["grün", "=1.txt"]
    Path("grün, =1.txt").touch()
    assert read(quoted("topology.files=[grün, =1.txt]")) == ["grün, =1.txt"]
    for name in ("grün", "=1.txt"):
        Path(name).touch()
    assert read(quoted("topology.files=[grün, =1.txt]")) == ["grün", "=1.txt"]
    assert quoted("participation.file=a,b", sweep=True) == "participation.file=a,b"
    assert quoted("participation.file=ü,b", sweep=True) == "participation.file='ü',b"


def test_a_home_that_the_shell_left_is_refused() -> None:
    for argument in ("resume=~/x", "schedule.file=~ann/x", "topology.files=[a,~/x]"):
        with pytest.raises(InvalidSetting, match=r"the shell leaves ~ as it is here; write \$HOME"):
            quoted(argument)
