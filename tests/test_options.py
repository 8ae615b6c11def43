"""The usage of every experiment, which the site shows, names the options that it takes."""

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from flax.traverse_util import flatten_dict

from experiments.harness.command_line import Request
from experiments.results import TAKE
from trip_jax import Config

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
WITHOUT_REQUEST = {"calibrate": set[str](), "results": {*TAKE, *sum(TAKE.values(), ())}}
"""The options of experiments that make no `Request`."""


class Asked(Exception):
    """An experiment has said which options it takes."""


def options_of(experiment: Any, name: str) -> set[str]:
    """The options that the `Request` of an experiment takes, but for those of all figures."""
    with pytest.raises(Asked) as caught:
        getattr(experiment, name)([])
    return set(caught.value.args[0])


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERIMENTS.glob("[a-z]*.py")))
def test_the_usage_of_an_experiment_names_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: Request, _: str, __: Sequence[str], names: Collection[str], *_rest: Any) -> None:
        raise Asked(names)

    monkeypatch.setattr(Request, "__init__", ask)
    experiment = import_module(f"experiments.{name}")
    usage = (experiment.__doc__ or "").split("\n\n")[1]
    named = set(re.findall(r"(?<=[\[ ])([a-z_.]+)=", usage))
    taken = WITHOUT_REQUEST[name] if name in WITHOUT_REQUEST else options_of(experiment, name)
    assert not taken - named, f"the usage of experiments.{name} lacks options"
    others = named - taken  # settings of runs, where an experiment takes any
    takes_any = "refuse_overrides" not in Path(experiment.__file__ or "").read_text()
    assert ("SETTING=VALUE" in usage) == (takes_any and name not in WITHOUT_REQUEST)
    assert others <= (flatten_dict(asdict(Config()), sep=".").keys() if takes_any else set())
