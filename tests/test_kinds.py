"""Every kind says which settings it reads, and what it says is true."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.conftest import TINY, Command
from trip_jax import InvalidSetting
from trip_jax.cli.effects import switches
from trip_jax.config import Config
from trip_jax.data.sources import DATASETS
from trip_jax.learning.privacy import Privacy
from trip_jax.protocol.adversaries import Adversary, choose_liars
from trip_jax.protocol.aggregation import AGGREGATIONS, Aggregation, WeightedMean
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.exchange import CHANNELS, ChannelConfig
from trip_jax.protocol.fakes import FAKES
from trip_jax.runs.checkpoints import refuse_changes
from trip_jax.runs.provenance import arrays_hash, result_settings
from trip_jax.runs.schema import config_of_values
from trip_jax.settings import Kinds
from trip_jax.settings.idle import EFFECT, choosers, idle, readers, switched_off
from trip_jax.topology import DURATIONS, SCHEDULES, Participation, ScheduleConfig, build
from trip_jax.topology.asynchrony import ScheduleRule

SECTIONS = {
    one.name: section
    for one in fields(Config())
    if is_dataclass(section := getattr(Config(), one.name))
}
REGISTRIES = {
    choices.setting: choices
    for section in SECTIONS.values()
    for choices in choosers(section).values()
    if isinstance(choices, Kinds)
} | {kinds.setting: kinds for kinds in (FAKES, DATASETS)}


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch, kept_namesakes: None) -> None:
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_named", dict(registry._named))


def by_kind(section: Any) -> list[str]:
    """The fields that only some kinds read."""
    marked = {one.name: one.metadata.get(EFFECT) for one in fields(section)}
    return [name for name, effect in marked.items() if effect and effect.by_kind]


@pytest.mark.parametrize("name", SECTIONS)
def test_what_kinds_read_are_settings_that_only_some_read(name: str) -> None:
    """A name that is misspelt, or a setting that nobody reads any more, would show here."""
    section = SECTIONS[name]
    read = {one for it in choosers(section).values() for kind in it for one in it.reads(kind)}
    elsewhere = {one for one in read if "." in one}
    marked = {one.name for one in fields(section) if EFFECT in one.metadata}
    assert set(by_kind(section)) <= read - elsewhere <= marked
    assert elsewhere <= switches(Config()).keys()


def test_every_section_of_several_kinds_has_a_registry_of_what_they_read() -> None:
    chosen = {f"{name}.{one}" for name, of in SECTIONS.items() for one in choosers(of)}
    assert {f"{name}.kind" for name in Config().kinds} <= chosen
    assert {"contribution.method", "dataset.name", "defence.c1", "defence.c2"} <= chosen
    assert len(REGISTRIES) >= 15


@pytest.mark.parametrize("setting", list(REGISTRIES))
def test_a_kind_that_does_not_say_what_it_reads_is_refused(setting: str) -> None:
    registry = REGISTRIES[setting]
    must = r"must (say which settings it reads|be a class derived from Method)"
    with pytest.raises(InvalidSetting, match=f"{setting}=mine {must}"):
        registry("mine")(lambda *given: None)
    with pytest.raises(InvalidSetting, match=f"{setting}=mine {must}"):
        registry("mine", reads="amount")(lambda *given: None)
    assert "mine" not in registry


def test_a_kind_that_reads_what_does_not_exist_is_refused() -> None:
    CHANNELS("mine", reads=("bitz",))(lambda settings: None)
    with pytest.raises(InvalidSetting, match=r"channel=mine says that it reads channel\.bitz"):
        ChannelConfig("mine")


def test_a_kind_of_ones_own_reads_what_it_says_and_no_more() -> None:
    CHANNELS("mine", reads=("bits",))(lambda settings: None)
    found = idle("channel", ChannelConfig("mine", bits=5))
    assert found.pop("channel.bits") is None and set(found.values()) == {"channel=mine"}


def test_a_schedule_of_ones_own_reads_what_it_says_and_no_more() -> None:
    """Though delay and spread are also of the parts that schedule=events chooses."""

    @SCHEDULES("mine", reads=("delay",))
    @ScheduleRule
    def mine(settings: ScheduleConfig, topology: Any, *others: Any) -> Any:
        return replace(topology, wave=1 + settings.delay)

    found = idle("schedule", ScheduleConfig("mine", latency="file", delay=2.0))
    assert found.pop("schedule.delay") is None and set(found.values()) == {"schedule=mine"}
    Config(
        schedule=ScheduleConfig("mine"), participation=Participation("bernoulli")
    )  # which it heeds
    ring = build(np.eye(4) + np.roll(np.eye(4), 1, 0), np.ones(4))
    clocks = ScheduleConfig("mine", delay=2.0)
    made = clocks.over(ring, Participation(), 1, np.ones(4, int), drop=0.0, seed=0)
    assert made.wave == 3 and clocks.unit == "round"


def test_a_part_of_ones_own_is_one_of_several_that_read_a_setting() -> None:
    DURATIONS("mine", reads=("delay",))(lambda settings, sizes, rng: np.ones(len(sizes)))
    clocks = ScheduleConfig("events", duration="mine", latency="file", file="times.txt")
    assert switched_off("schedule", clocks, "delay") is None
    assert switched_off("schedule", clocks, "spread") == "schedule.duration=mine"


def test_a_fake_of_ones_own_reads_a_setting_of_the_defence() -> None:
    FAKES("mine", reads=("defence.v_threshold",))(lambda true, keys, tolerated, learner: true)
    for fake, switch in (("mine", None), ("noise", "defence.c1=false")):
        found = switches(Config(adversary=Adversary("d1", fake=fake)))
        assert found["defence.v_threshold"] == switch
    found = switches(Config(adversary=Adversary("d2", fake="mine")))  # who sends none
    assert found["defence.v_threshold"] == "defence.c1=false"


def test_a_kind_of_ones_own_is_named_without_a_file(command: Command) -> None:
    CHANNELS("mine", reads=())(lambda settings: None)
    assert command(*TINY, "channel=mine").error.endswith("of settings: write channel.kind=mine.")
    refused = command(*TINY, "channel.kind=mine", "channel.bits=5")
    assert "channel.bits has no effect with channel=mine: leave it out, or set" in refused.error


def test_who_lies_is_read_by_adversaries_that_read_nothing_else() -> None:
    found = idle("adversary", Adversary("garbage", fraction=0.5))
    assert found["adversary.fraction"] is None and found["adversary.clients"] is None
    assert found["adversary.amount"] == "adversary=garbage"


def test_a_rule_is_registered_as_what_builds_it() -> None:
    @dataclass(frozen=True)
    class Named(WeightedMean):
        kind: str

    AGGREGATIONS("mine", reads=())(lambda settings: Named(settings.kind))
    assert Aggregation("mine").build() == Named("mine")
    with pytest.raises(InvalidSetting, match=r"aggregation\.kind must be one of weighted_mean"):
        Aggregation("mean")


def test_settings_of_an_older_version_name_the_kind_alone() -> None:
    words = config_of_values({"aggregation": "weighted_mean", "channel": "top_k"})
    assert words.aggregation == Aggregation() and words.channel == ChannelConfig("top_k")
    now = result_settings(Config())
    then = {name: value for name, value in now.items() if not name.startswith("aggregation.")}
    refuse_changes(Path(), then | {"aggregation": "weighted_mean"}, now)
    with pytest.raises(InvalidSetting, match=r"aggregation\.kind=median, not weighted_mean"):
        refuse_changes(Path(), then | {"aggregation": "median"}, now)


def _liars(settings: Adversary) -> Any:
    who = choose_liars(settings, 10, 0).tolist() if settings.kind != "none" else None
    return settings.lie(0.1, "paper"), who


def _private(settings: Privacy) -> Any:
    mechanism = settings.build(4)
    return mechanism, mechanism.guarantee(4, settings.delta)


def _defended(settings: Defence) -> Any:
    return settings.filter(), settings.audit()


def _scheduled(settings: ScheduleConfig) -> str:
    graph = build(np.eye(4) + np.roll(np.eye(4), 1, 0), np.ones(4))
    sizes = np.array([5, 6, 7, 9])
    return arrays_hash(settings.over(graph, Participation(), 6, sizes, drop=0.0, seed=0))


def _network(settings: Any) -> Any:
    """The shapes of a network, and what a form for training of its own gives."""
    model = settings.build((8, 8, 1), 10)
    given = jax.random.key(0), jax.random.normal(jax.random.key(1), (4, 8, 8, 1))
    if model.train is None:
        return jax.tree.map(np.shape, jax.eval_shape(model.init, *given))
    params = model.init(*given)
    trained = model.train(params, given[1], given[0])[0]
    return jax.tree.map(np.shape, params), np.asarray(trained).tolist()


WHAT_COMES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "channel": (
        lambda settings: settings.build(),
        {"share": 0.5, "bits": 5, "rank": 3, "error_feedback": False, "learning": True},
    ),
    "trust": (lambda settings: settings.build(), {"beta": 2.0, "floor": 0.3, "memory": 0.1}),
    "privacy": (_private, {"clip": 2.0, "noise": 3.0, "epsilon": 5.0, "delta": 1e-3}),
    "protocol": (
        lambda settings: settings.build(),
        {"drop": 0.5, "hops": 2, "liars": 0.3, "behaviour": "forge"},
    ),
    "adversary": (
        _liars,
        {
            **{"fake": "noise", "amount": 0.3, "lower_others": True, "collude": True},
            **{"claim": "modest", "logits": 5.0, "victim": 3, "strength": 3.0},
        },
    ),
    "aggregation": (
        lambda settings: settings.build(),
        {"faulty": 2, "radius": 0.5, "tolerance": 0.7, "decay": 0.3, "own": 0.2},
    ),
    "defence": (
        _defended,
        {"v_threshold": 0.3, "penalty": 0.5, "distance": 0.7, "thresholding": "hard"},
    ),
    "participation": (
        lambda settings: str(settings.present(9, 5, 0)),
        {"probability": 0.3, "file": "nobody.txt", "events": ("leave 1 2",)},
    ),
    "model": (_network, {"hidden": (9,), "channels": (3,), "dropout": 0.5}),
    "contribution": (
        lambda settings: settings.build(),
        {"normalization": "efficient", "semivalue": "loo", "estimator": "permutation", "budget": 9},
    ),
    "schedule": (
        _scheduled,
        {"duration": "equal", "spread": 9.0, "latency": "exponential", "delay": 3.0, "file": "x"},
    ),
}
"""By section: what comes of its settings, and other values of those that only some kinds read.

Numbers and switches may be left out, see `changed`. Data and graphs are in
tests/test_hostile_settings.py, training in tests/test_optimizers.py; data sets have no such
settings.
"""
GIVEN: dict[tuple[str, str], dict[str, Any]] = {
    ("participation", "trace"): {"file": "here.txt"},
    ("participation", "events"): {"events": ("join 2 4",)},
    ("schedule", "events"): {"delay": 0.5},
}
"""What a kind can't do without."""


def changed(value: Any) -> Any:
    """Another value of a setting that is a switch or a number."""
    if isinstance(value, bool):
        return not value
    assert isinstance(value, int | float), "say another value in WHAT_COMES"
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


def every_kind() -> Iterator[tuple[str, str, Any]]:
    for name in WHAT_COMES:
        for chooser, choices in choosers(SECTIONS[name]).items():
            if chooser in ("kind", "method", "c1", "c2"):
                yield from ((name, chooser, kind) for kind in choices)


@pytest.mark.parametrize(("name", "chooser", "kind"), list(every_kind()))
def test_what_a_kind_says_that_it_reads_is_true(
    name: str, chooser: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One setting is changed at a time: more or less comes of it where it is read alone.

    A setting that is not read may be refused instead.
    """
    monkeypatch.chdir(tmp_path)
    for file in ("here.txt", "nobody.txt"):
        Path(file).write_text("1 2 3\n" if file == "here.txt" else "1 4 -\n")
    Path("x").write_text("".join(f"{client} {client + 1} 0\n" for client in range(4)))
    come, others = WHAT_COMES[name]
    usual = {one: getattr(SECTIONS[name], one) for one in by_kind(SECTIONS[name])}
    assert others.keys() <= usual.keys()
    others = others | {one: changed(value) for one, value in usual.items() if one not in others}
    utility = {"utility": "loss"} if name == "contribution" else {}
    given = utility | {chooser: kind} | GIVEN.get((name, str(kind)), {})
    settings = replace(SECTIONS[name], **given)
    before, tried = come(settings), 0
    for field, value in others.items():
        read = field in choosers(settings)[chooser].reads(kind)
        if chooser in ("c1", "c2") and not readers(settings, field).get(chooser):
            continue  # of the other switch
        try:
            changes = {field: value}
            if name == "schedule" and field == "file" and read:
                changes |= {"duration": "file"}  # the part that reads it
            after = come(replace(settings, **changes))
        except InvalidSetting as refusal:
            assert not read, refusal
            continue
        assert (after != before) == read, field
        tried += 1
    assert tried
