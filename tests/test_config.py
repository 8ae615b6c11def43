"""Configuration files: every choice composes, and agrees with what `Config` accepts and assumes."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from flax.traverse_util import flatten_dict
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from tests.conftest import rarely
from trip_jax.cli.allowed import allowed
from trip_jax.config import (
    Adversary,
    Aggregation,
    ChannelConfig,
    Config,
    Contribution,
    DatasetConfig,
    Defence,
    Distributed,
    Distribution,
    ModelConfig,
    Participation,
    Privacy,
    ProtocolConfig,
    ScheduleConfig,
    TopologyConfig,
    Training,
    Trust,
)
from trip_jax.protocol.aggregation import AGGREGATIONS
from trip_jax.protocol.defences import CALIBRATED
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.schema import register
from trip_jax.settings import UNIT
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology import SCHEDULES

CONF = Path(__file__).resolve().parents[1] / "conf"
CLASSES = get_type_hints(Config)
GROUPS = {
    folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
    for folder in sorted(CONF.iterdir())
    if folder.is_dir()
}
CHOICES = [(group, choice) for group, choices in GROUPS.items() for choice in choices]


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(*overrides: str) -> Config:
    config = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    assert isinstance(config, Config)
    return config


ASKED = {
    ("topology", "file"): "files",
    ("participation", "trace"): "file",
    ("participation", "events"): "events",
}
"""Settings that a choice leaves to the user."""


def needed(group: str, choice: str) -> list[str]:
    """What a choice cannot do without."""
    lists = {
        ("topology", "file"): "topology.files=[graph.txt]",
        ("participation", "trace"): "participation.file=trace.txt",
        ("participation", "events"): "participation.events=['join 1 2']",
        ("truth", "decentralised"): "truth.samples=512",
    }
    return [lists[group, choice]] if (group, choice) in lists else []


def leading_comment(path: Path) -> str:
    lines = path.read_text().splitlines()
    comment = [line for i, line in enumerate(lines) if all(x[:1] == "#" for x in lines[: i + 1])]
    return "\n".join(comment)


def test_every_group_belongs_to_the_schema() -> None:
    groups = {f.name for f in fields(Config) if is_dataclass(f.type)}
    assert set(GROUPS) - {"experiment", "execution"} == groups - {"checkpoint"}


def require_choice(config: Config, group: str, choice: str) -> None:
    """A configuration has what a choice of a group stands for."""
    named = {"distribution", "topology", "model", "adversary", "channel", "trust", "privacy"}
    if group in named | {"protocol", "schedule", "truth"}:
        assert getattr(config, group).kind == choice
    if group == "contribution":
        assert config.contribution.estimator == choice
    if group == "dataset":
        assert config.dataset.name == choice
    if group == "defence":
        wanted = {"both": (True, True), "c1": (True, False), "c2": (False, True)}
        assert (config.defence.c1, config.defence.c2) == wanted.get(choice, (False, False))


@pytest.mark.parametrize(
    ("group", "choice"),
    [pair if pair[0] == "experiment" else rarely(*pair) for pair in CHOICES],
)
def test_every_choice_composes(group: str, choice: str) -> None:
    """Alone; all of them together, too, below."""
    plus = "+" if group == "experiment" else ""
    require_choice(composed(f"{plus}{group}={choice}", *needed(group, choice)), group, choice)


@pytest.mark.parametrize(
    "experiment", ["ws100", *map(rarely, sorted({*GROUPS["experiment"]} - {"ws100"}))]
)
def test_every_choice_goes_into_every_experiment(experiment: str) -> None:
    """The first choices of all groups together, then the second ones, and so on."""
    groups = [group for group in GROUPS if group != "experiment"]
    for choices in zip_longest(*(GROUPS[group] for group in groups)):
        chosen = {group: one for group, one in zip(groups, choices, strict=True) if one}
        if SCHEDULES[chosen.get("schedule", "synchronous")].own_presence:
            chosen.pop("participation", None)
        lists = [setting for choice in chosen.items() for setting in needed(*choice)]
        given = [f"{group}={choice}" for group, choice in chosen.items()]
        config = composed(f"+experiment={experiment}", *given, *lists)
        for group, choice in chosen.items():
            require_choice(config, group, choice)
            part = getattr(config, group, None)
            if (said := getattr(part, "kind", getattr(part, "name", None))) is not None:
                assert said == choice


@pytest.mark.parametrize(
    ("group", "make"),
    [
        ("dataset", lambda: DatasetConfig(name="?")),
        ("distribution", lambda: Distribution(kind="?")),
        ("topology", lambda: TopologyConfig(kind="?")),
        ("model", lambda: ModelConfig(kind="?")),
        ("contribution", lambda: Contribution(estimator="?")),
        ("adversary", lambda: Adversary(kind="?")),
        ("aggregation", lambda: Aggregation(kind="?")),
        ("channel", lambda: ChannelConfig(kind="?")),
        ("trust", lambda: Trust(kind="?")),
        ("privacy", lambda: Privacy(kind="?")),
        ("protocol", lambda: ProtocolConfig(kind="?")),
        ("participation", lambda: Participation(kind="?")),
        ("schedule", lambda: ScheduleConfig(kind="?")),
    ],
)
def test_every_kind_has_its_file(group: str, make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidSetting, match="must be one of") as caught:
        make()
    accepted = re.search("must be one of (.*), not", str(caught.value))
    assert accepted
    assert sorted(accepted[1].split(", ")) == GROUPS[group]


# A file may differ from the defaults of the Python API where that is what the choice is for.
DIFFERENT = {
    ("dataset", "file"): {"name": "file", "test_size": None},
    ("channel", "random_k"): {"kind": "random_k", "share": 0.1},
    ("distributed", "cluster"): {"coordinator": "auto"},
    ("model", "cnn"): {"kind": "cnn", "hidden": [128]},
    ("topology", "erdos_renyi"): {"kind": "erdos_renyi", "probability": 0.5},
    ("training", "quick"): {"local_epochs": 3, "learning_rate": 0.05},
}


def test_the_package_names_a_choice_in_one_file() -> None:
    """So that one more takes that file and one of conf/; these words mean nothing else anywhere."""
    sources = {file: file.read_text() for file in (CONF.parent / "trip_jax").rglob("*.py")}
    others = "quantised", "low_rank", "bernoulli", "trace", "lognormal", "exponential", "dp"
    for choice in (*AGGREGATIONS, *others):
        named = [file for file, text in sources.items() if f'"{choice}"' in text]
        assert len(named) == 1, (choice, named)


def test_what_no_result_depends_on_is_one_group() -> None:
    """The file of the group names the fields that are marked so, with their defaults."""
    written = flatten_dict(OmegaConf.to_container(OmegaConf.load(CONF / "execution" / "here.yaml")))
    everything = flatten_dict(asdict(Config()))
    of_results = {tuple(name.split(".")) for name in result_settings(Config())}
    assert of_results <= everything.keys()
    rest = everything.keys() - of_results
    own_groups = ("distributed", "truth")
    there = {name: everything[name] for name in rest if name[0] not in own_groups}
    lists = {name: list(value) for name, value in there.items() if isinstance(value, tuple)}
    assert written == there | lists
    assert {("distributed", field.name) for field in fields(Distributed)} <= rest


@pytest.mark.parametrize(("group", "choice"), [c for c in CHOICES if c[0] in CLASSES])
def test_files_and_dataclasses_assume_the_same(group: str, choice: str) -> None:
    said = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{choice}.yaml"))
    assert isinstance(said, dict)
    said.pop("defaults", None)
    if asked := ASKED.get((group, choice)):
        assert said.pop(asked) == "???"
    assumed = asdict(CLASSES[group]())
    differ = {
        name: value
        for name, value in said.items()
        if value != (list(assumed[name]) if isinstance(value, list) else assumed[name])
    }
    if group == "defence":
        switches = ("c1", "c2", "receivers")
        differ = {name: value for name, value in differ.items() if name not in switches}
        assert not differ
    elif (group, choice) in DIFFERENT:
        assert differ == DIFFERENT[group, choice]
    else:
        assert set(differ) <= {"kind", "name", "estimator"}


@pytest.mark.parametrize("choice", ["c1", "c2", "both"])
def test_defences_come_with_the_thresholds_of_the_api(choice: str) -> None:
    config = composed(f"defence={choice}", "contribution.utility=accuracy")
    assert config.contribution == Contribution(utility="accuracy", normalization="paper")
    assert config.defence == Defence(c1=choice in ("c1", "both"), c2=choice in ("c2", "both"))


@pytest.mark.parametrize("utility", ["accuracy", "loss", "probability"])
@pytest.mark.parametrize("normalization", ["paper", "efficient"])
def test_thresholds_are_calibrated_for_every_report(utility: str, normalization: str) -> None:
    reports = Contribution(utility=utility, normalization=normalization)
    config = replace(composed("defence=both"), contribution=reports)
    defence = config.calibrated().defence
    assert defence.penalty is not None and defence.distance is not None
    assert 0 < defence.penalty < 1 and 0 < defence.distance < 1
    chosen = replace(config, defence=replace(config.defence, penalty=7.0)).calibrated().defence
    assert (chosen.penalty, chosen.distance) == (7, defence.distance)


def test_quickstart() -> None:
    assert composed() == Config(
        distribution=Distribution(kind="sizes"),
        training=Training(local_epochs=3, learning_rate=0.05),
    )


def test_ws100_is_the_setting_of_the_paper() -> None:
    config = composed("+experiment=ws100")
    assert (config.n_clients, config.dataset.name, config.model.kind) == (
        100,
        "fashion_mnist",
        "cnn",
    )
    assert config.dataset.train_size is None and config.dataset.test_size == 500
    assert config.model == ModelConfig("cnn", hidden=(128,), channels=(32, 64))
    assert config.distribution.kind == "iid"
    assert config.topology == TopologyConfig("watts_strogatz", degree=4, probability=0.1)
    assert config.training == Training(
        rounds=50, local_epochs=3, batch_size=32, learning_rate=0.01, momentum=0.9
    )
    assert config.adversary.kind == "none"
    assert not config.defence.c1 and not config.defence.c2


def test_ws100_takes_the_label_noise_of_the_paper() -> None:
    config = composed("+experiment=ws100", "distribution=noisy_labels")
    assert config.distribution == Distribution(kind="noisy_labels", max_label_noise=0.2)


def test_command_line_wins_over_the_experiment() -> None:
    config = composed(
        "+experiment=ws100",
        "dataset=cifar10",
        "distribution=noisy_images",
        "adversary=d1d2",
        "defence=both",
        "seed=3",
        "n_clients=20",
        "training.rounds=7",
        "training.learning_rate=0.5",
    )
    assert (config.dataset.name, config.distribution.kind) == ("cifar10", "noisy_images")
    assert config.adversary.kind == "d1d2"
    assert config.defence.c1 and config.defence.c2
    assert (config.seed, config.n_clients, config.topology.kind) == (3, 20, "watts_strogatz")
    assert (config.training.rounds, config.training.learning_rate) == (7, 0.5)


@pytest.mark.parametrize("experiment", GROUPS["experiment"])
def test_experiments_begin_with_their_command(experiment: str) -> None:
    comment = leading_comment(CONF / "experiment" / f"{experiment}.yaml")
    assert f"# Command:  python -m trip_jax.run +experiment={experiment}\n" in comment
    assert "# Hardware: " in comment and "# Result:   " in comment
    assert comment.startswith("# @package _global_\n")


def test_quickstart_begins_with_its_command() -> None:
    comment = leading_comment(CONF / "config.yaml")
    assert "# Command:  python -m trip_jax.run\n" in comment
    assert "# Hardware: " in comment and "# Result:   " in comment


def test_the_table_of_thresholds_is_the_one_in_force() -> None:
    text = (CONF / "defence" / "none.yaml").read_text()
    rows = re.findall(r"^#   (\w+) +(paper|efficient) +([\d.]+) +([\d.]+) ", text, re.MULTILINE)
    written = {(u, norm): (float(penalty), float(distance)) for u, norm, penalty, distance in rows}
    assert {("shapley", *which): pair for which, pair in written.items()} == CALIBRATED


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DatasetConfig(test_size=0), ["dataset.test_size", "at least 1", "0"]),
        (lambda: Distribution(alpha=0), ["distribution.alpha", "above 0"]),
        (lambda: Distribution(order="up"), ["distribution.order", "random", "sorted", "'up'"]),
        (lambda: Distribution(max_noise=float("nan")), ["distribution.max_noise", "nan"]),
        (lambda: TopologyConfig(weights="?"), ["topology.weights", "metropolis"]),
        (lambda: TopologyConfig(redraw_every=0), ["topology.redraw_every", "at least 1"]),
        (lambda: TopologyConfig(kind="file"), ["topology.files", "topology=file"]),
        (lambda: TopologyConfig(files=("a",)), ["topology.files", "topology=file"]),
        (lambda: TopologyConfig(kind="file", files=("a", "b")), ["topology.redraw_every"]),
        (lambda: ModelConfig(hidden=(8, 0)), ["model.hidden", "at least 1"]),
        (lambda: ModelConfig("cnn", (8, 8)).build((8, 8, 1), 9), ["model.hidden", "[8, 8]"]),
        (lambda: Training(learning_rate=float("nan")), ["training.learning_rate", "nan"]),
        (lambda: Training(momentum=1), ["training.momentum", "below 1"]),
        (lambda: Training(batch_size=0), ["training.batch_size", "at least 1"]),
        (lambda: Contribution(utility="?"), ["contribution.utility", "probability"]),
        (lambda: Contribution(normalization="?"), ["contribution.normalization", "efficient"]),
        (lambda: Contribution(max_coalitions=0), ["contribution.max_coalitions", "at least 1"]),
        (lambda: Contribution(semivalue="?"), ["contribution.semivalue", "banzhaf, loo", "'?'"]),
        (lambda: Contribution(budget=0), ["contribution.budget", "at least 1", "0"]),
        (lambda: Adversary(fraction=1.1), ["adversary.fraction", "between 0 and 1", "1.1"]),
        (lambda: Adversary(fake="?"), ["adversary.fake", "sign_flipped"]),
        (lambda: Defence(penalty=0), ["defence.penalty", "above 0"]),
        (lambda: Defence(distance=-1), ["defence.distance", "at least 0"]),
        (lambda: Defence(thresholding="?"), ["defence.thresholding", "soft, hard"]),
        (lambda: Config(n_clients=0), ["n_clients", "at least 1"]),
        (lambda: Config(seed=-1), ["seed", "-1"]),
        (lambda: Config(seed=2**32), ["seed", "2^32"]),
        (lambda: Config(devices=0), ["devices", "at least 1"]),
        (lambda: Distributed("a:1"), ["distributed.coordinator=a:1", "distributed.processes"]),
        (lambda: Distributed(process=0), ["distributed.process", "coordinator=HOST:PORT"]),
        (lambda: Distributed("auto", 2, 0), ["distributed.process", "coordinator=HOST:PORT"]),
        (lambda: Distributed("a", 2, 1), ["distributed.coordinator", "HOST:PORT", "'a'"]),
        (lambda: Distributed("a:1", 2, 2), ["distributed.process", "between 0 and 1", "2"]),
        (lambda: Config(devices=1, distributed=Distributed("auto")), ["devices=1"]),
    ],
)
def test_wrong_values_are_refused_by_name(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(InvalidSetting) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")
    for word in words:
        assert word in message


SECTIONS = {"": Config()} | {
    f"{name}.": section for name, section in vars(Config()).items() if is_dataclass(section)
}


NUMBERS = {
    prefix + name: (section, name, str(hint))
    for prefix, section in SECTIONS.items()
    for name, hint in get_type_hints(type(section)).items()
    if re.search(r"\b(int|float)\b", str(hint))
}
"""The section, own name and type of every setting that is a number, or several."""


@pytest.mark.parametrize("full", NUMBERS)
def test_a_number_has_a_unit_and_its_range_holds(full: str) -> None:
    section, name, hint = NUMBERS[full]
    (unit,) = (one.metadata.get(UNIT) for one in fields(section) if one.name == name)
    assert unit, f"{full} has no unit: declare it by measured(default, unit)"
    outside = list(just_outside(allowed(full)))
    assert outside or "str" in hint, f"{full} has no range: check it in __post_init__"
    for value in outside:
        with pytest.raises(InvalidSetting, match=full):
            replace(section, **{name: (value,) if "tuple" in hint else value})


def just_outside(range_in_words: str) -> Iterator[float]:
    """The first values that are in a range no more, of those whole numbers that are near its ends.

    Its words are such as "above 0 and at most 1", "between 1 and 1,000,000" or "1 or 2".
    """
    steps = {"at least": -1, "between": -1, "above": 0, "below": 0, "at most": 1, "and": 1, "or": 1}
    for word, end in re.findall(rf"({'|'.join(steps)}) ([\d^,.e+-]*\d)", range_in_words):
        base, _, power = end.replace(",", "").partition("^")
        value = float(base) ** float(power or 1)
        yield int(value + steps[word]) if value.is_integer() else value + steps[word]


def test_help_has_a_text_for_every_field() -> None:
    for one in map(type, vars(Config()).values()):
        if is_dataclass(one):
            listed = re.findall(r"^\* ``(\w+)``: \S", inspect.getdoc(one) or "", re.MULTILINE)
            assert listed == [field.name for field in fields(one)], one
