"""Commands drawn at random: a finished run, or one sentence and nothing left behind."""

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from flax.traverse_util import flatten_dict

import trip_jax.runs.launch
from tests.conftest import TINY, Command
from trip_jax.cli.allowed import allowed
from trip_jax.config import Config
from trip_jax.runs.prepare import lay_out
from trip_jax.runs.reading import load_run
from trip_jax.runs.schema import CONF
from trip_jax.settings.errors import InvalidSetting

pytestmark = pytest.mark.usefixtures("quick_figures")

SETTINGS = [
    name for name in flatten_dict(asdict(Config()), sep=".") if not name.startswith("distributed")
]
"""But for those by which processes share a run, and wait for each other."""
CHOICES = {
    group.name: sorted(path.stem for path in group.glob("*.yaml"))
    for group in sorted(CONF.iterdir())
    if group.is_dir()
}
NONSENSE = (
    "",
    "null",
    "abc",
    "[1]",
    "[a,b]",
    "[[1]]",
    "{a: 1}",
    "1.5.2",
    "true",
    "nan",
    "a b",
    "ü",
)
BY_TYPE = {
    "integer": ("0", "1", "2", "3", "5", "7", "-1", "2.5", "1e3", "07", "0x10", "inf"),
    "number": (
        "0",
        "0.5",
        "1",
        "0.1",
        "1e-9",
        "-0.5",
        "2",
        "1e300",
        "1e-300",
        "nan",
        "inf",
        "-inf",
    ),
    "true or false": ("true", "false", "1", "yes", "perhaps"),
    "list": ("[]", "[1]", "[0,1]", "[2,2]", "[-1]", "[1.5]", "3", "[graph.txt]", "[.]", "[nope]"),
}
STRANGE = (
    *("seed", "=3", "seed==3", "seed='", "seed=[1", "~seed", "~topology", "+seed=3", "++seed=3"),
    *(
        "seed=${nope}",
        "seed=${oc.env:NOPE}",
        "seed=${",
        "n_clients=${seed}",
        "topology={kind: star}",
    ),
    *("+foo=1", "+model.foo=1", "foo.bar=1", "model.hidden.0=3", "topology=[star,line]", "--seed"),
    *("seed=1,2", "seed=range(3)", "topology@model=star", "+topology=star", "config_schema=1"),
    *("hydra.run.dir=", "hydra.run.dir=~/x", "hydra.run.dir=${nope}", "hydra.run.dir=/dev/null/x"),
    *("hydra.run.dir=graph.txt", "hydra.run.dir=graph.txt/x", f"hydra.run.dir={'n' * 300}"),
    *("hydra.run.dir=a,b", "hydra.run.dir=ü/ß", "hydra.sweep.dir=x", "hydra/launcher=nope"),
    *("hydra/launcher=submitit_slurm", "hydra/sweeper=optuna", "hydra=nope", "hydra.nope=1"),
    *("resume=nowhere", "resume=.", "resume=auto", "resume=graph.txt", "distributed.process=1"),
    *(
        "distributed.processes=2",
        "distributed.coordinator=nope",
        "distributed=cluster",
        "\t",
        "ü=1",
    ),
)


def drawn(chance: random.Random) -> list[str]:
    """One to three settings: most of a type that a setting takes, some of none."""
    arguments = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.random()
        if kind < 0.15:
            arguments.append(chance.choice(STRANGE))
        elif kind < 0.4:
            group = chance.choice(list(CHOICES))
            choice = chance.choice([*CHOICES[group], chance.choice(NONSENSE)])
            arguments.append(f"{'+' * (group == 'experiment')}{group}={choice}")
        else:
            name = chance.choice(SETTINGS)
            words = allowed(name)
            named = words.split("one of ")[-1].split(", ") if "one of " in words else []
            typed = [value for kind, values in BY_TYPE.items() if kind in words for value in values]
            values = [*named, *typed] or ["x"]
            arguments.append(f"{name}={chance.choice([*values, chance.choice(NONSENSE)])}")
    return arguments


class Ready(InvalidSetting):
    """Nothing was wrong before the first round."""


def almost(config: Config) -> Any:
    """What a run begins with, except for what is compiled."""
    lay_out(config)
    raise Ready("Ready.")


@pytest.mark.filterwarnings("ignore::trip_node.settings.errors.Notice")  # of drawn sizes
def test_a_command_is_a_run_or_a_sentence(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    """The plain one and some others run whole, the rest to where a round would begin."""
    (tmp_path / "graph.txt").write_text("0 1\n1 2\n")
    ready = finished = 0
    for seed in range(2000 if thorough else 12):
        chance = random.Random(seed)
        # The first is plain, and runs whole.
        arguments = [*TINY, *(["devices=all", *drawn(chance)] if seed else [])]
        # The data sets and experiments that are not here end in a sentence of their own.
        rare = not seed or (thorough and chance.random() < 0.1)
        whole = rare and not any("track=" in one for one in arguments)
        with monkeypatch.context() as patch:
            if not whole:
                patch.setattr(trip_jax.runs.launch, "prepare", almost)
            try:
                outcome = command(*arguments)
            except BaseException as error:
                raise AssertionError(f"seed {seed}: {arguments}") from error
        left = sorted(path for path in tmp_path.iterdir() if path.name != "graph.txt")
        said = f"seed {seed}: {arguments}: {outcome} left {left}"
        if outcome.code == 0:
            finished += 1
            (folder,) = (path.parent for path in tmp_path.rglob("summary.json"))
            assert load_run(folder).summary["status"] == "finished" and not outcome.err, said
            for path in left:
                path.rename(path.parent.parent / f"{tmp_path.name}_{seed}_{path.name}")
        else:
            assert outcome.code == 2 and not left, said
            (line,) = outcome.err.splitlines()
            assert line.startswith("error: "), said
            assert "Traceback" not in outcome.out + outcome.err and len(line) < 1500, said
            ready += line == "error: Ready."
    assert finished >= 1
    if thorough:  # of few commands none may be without a mistake
        assert ready > 20
        print(f"{finished} finished, {ready} would have begun")
