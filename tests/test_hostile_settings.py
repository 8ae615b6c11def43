"""Settings that change nothing beside others are refused, and no others."""

from dataclasses import asdict, fields, is_dataclass, replace
from re import escape
from typing import Any, get_type_hints

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests.conftest import TINY, Command, config_of, rarely, tiny_config
from trip_jax.cli.effects import refuse_idle, switches
from trip_jax.config import Config
from trip_jax.runs.prepare import lay_out
from trip_jax.runs.provenance import arrays_hash
from trip_jax.runs.schema import CONF
from trip_jax.settings.errors import InvalidSetting

IDLE = {
    "adversary.clients=[1,2]": "adversary=none",
    "adversary.fraction=0.2": "adversary=none",
    "adversary=d1 adversary.amount=0.3": "adversary=d1",
    "adversary=d2 adversary.fake=noise": "adversary=d2",
    "adversary=d1 adversary.clients=[1] adversary.fraction=0.5": "adversary.clients, which say",
    "adversary=garbage adversary.collude=true": "adversary=garbage",
    "defence.penalty=0.5": "defence.c2=false",
    "defence=c1 defence.distance=0.5": "defence.c2=false",
    "defence=c2 defence.v_threshold=0.5": "defence.c1=false",
    "contribution.method=weights contribution.budget=50": "contribution.method=weights",
    "contribution=exact contribution.budget=50": "contribution.estimator=exact",
    "contribution=exact contribution.method=net_gain contribution.budget=9": "estimator=exact",
    "contribution.method=gain contribution.normalization=efficient": "contribution.method=gain",
    "contribution.method=gain contribution=exact contribution.estimator=exact": "method=gain",
    "distribution.alpha=0.1": "distribution=iid: leave it out, or set distribution=dirichlet.",
    "adversary.lower_others=true": "or set adversary=d1d2 or d2.",
    "schedule.delay=1": "or set schedule=events.",
    "defence.thresholding=hard": "defence.c2=false: leave it out, or set defence.c2=true.",
    "channel.share=0.5": "or set channel=random_k or top_k.",
    "distribution=sizes distribution.max_noise=0.1": "distribution=sizes",
    "model.channels=[3]": "model=mlp",
    "topology.degree=2": "topology=star",
    "++topology.attachments=1": "topology=star",
    "topology=complete topology.redraw_every=1": "topology=complete",
    "topology=file topology.files=[a.txt] topology.redraw_every=1": "one graph in topology.files",
    "topology=file topology.files=[a.graphml] topology.directed=true": "which say it themselves",
}


BY_KIND = {
    *(
        "adversary=d1 adversary.amount=0.3",
        "adversary=d2 adversary.fake=noise",
        "channel.share=0.5",
    ),
    *("adversary=garbage adversary.collude=true", "adversary.lower_others=true"),
    *("contribution.method=weights contribution.budget=50", "model.channels=[3]"),
    *("distribution=sizes distribution.max_noise=0.1", "schedule.delay=1"),
}
"""Found as the others that a kind does not read are, see test_kinds.py."""


@pytest.mark.parametrize("arguments", [rarely(one) if one in BY_KIND else one for one in IDLE])
def test_a_setting_that_changes_nothing_is_refused(arguments: str) -> None:
    given = arguments.split()
    name = given[-1].lstrip("+").partition("=")[0]
    with pytest.raises(InvalidSetting, match=escape(f"{name} has no effect with")) as caught:
        refuse_idle(tiny_config(*given), given, in_sweep=False)
    assert IDLE[arguments] in str(caught.value) and "\n" not in str(caught.value)


def test_a_command_refuses_a_setting_that_changes_nothing(command: Command) -> None:
    outcome = command(*TINY, "hydra.run.dir=run", "++topology.attachments=1")
    assert outcome.code == 2 and "topology.attachments has no effect with" in outcome.error


@pytest.mark.parametrize(
    "arguments",
    [
        "adversary=d1 adversary.clients=[1,2] adversary.fake=noise",
        "adversary=d1d2 adversary.fraction=0.5 adversary.amount=0.3 adversary.collude=true",
        "adversary=d1 adversary.fake=evasive defence.v_threshold=0.1",
        "defence=c2 defence.penalty=0.5 defence.thresholding=hard",
        "defence.c1=true defence.v_threshold=0.1",
        "contribution.budget=50",
        "contribution.method=surrogate contribution.budget=50",
        "topology=complete topology.directed=true topology.redraw_every=1",
        "distribution=noisy_labels distribution.order=sorted distribution.max_label_noise=0.1",
        "topology=erdos_renyi topology.probability=0.9 topology.redraw_every=1",
    ],
)
def test_a_setting_that_changes_something_is_taken(arguments: str) -> None:
    refuse_idle(tiny_config(*arguments.split()), arguments.split(), in_sweep=False)


def test_a_sweep_may_leave_a_setting_to_its_other_jobs() -> None:
    """`-m adversary=none,d1 adversary.fraction=0.1`: the job that says so has no liars."""
    job = ["adversary=none", "adversary.fraction=0.1"]
    config = config_of(*TINY, *job)
    refuse_idle(config, job, in_sweep=True)
    for overrides, in_sweep in ((job, False), (job[1:], True)):
        with pytest.raises(InvalidSetting, match=r"adversary\.fraction has no effect"):
            refuse_idle(config, overrides, in_sweep)


def test_no_default_and_no_experiment_is_refused() -> None:
    assert switches(Config()).keys() <= flatten_dict(asdict(Config()), sep=".").keys()
    for experiment in sorted((CONF / "experiment").glob("*.yaml")):
        name = f"+experiment={experiment.stem}"
        refuse_idle(config_of(name), [name], in_sweep=False)


OTHERS: dict[str, Any] = {
    "distribution.order": "sorted",
    "distribution.owned_share": 0.2,
    "distribution.alpha": 3.0,
    "distribution.max_noise": 0.1,
    "distribution.max_label_noise": 0.9,
    "distribution.max_shift": 0.3,
    "topology.degree": 2,
    "topology.probability": 0.7,
    "topology.attachments": 3,
    "topology.redraw_every": 1,
}
"""Of all that data and graphs depend on."""
CHANGE_BY_THEMSELVES = ("one_peer_exponential", "random_matchings")
"""Topologies of a new graph in every round, unless it is to stay for longer."""
KINDS = [
    (group, path.stem)
    for group in ("distribution", "topology")
    for path in sorted((CONF / group).glob("*.yaml"))
    if path.stem not in ("file", "natural")  # which read a file
]


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_what_is_said_to_change_nothing_does_not(group: str, kind: str) -> None:
    """And all else does: data and graphs are drawn with one setting changed at a time."""
    small = ("dataset=synthetic", "dataset.train_size=300", "topology=ring", "distribution=iid")
    config = config_of(*small, f"{group}={kind}", "n_clients=9", "training.rounds=2", "seed=1")

    def drawn(config: Config) -> str:
        parts = lay_out(config)
        levels = np.asarray(parts.federation.levels)
        graphs, second = parts.topology.graphs, parts.topology.graph_of(1)
        of_second = jax.tree.map(lambda graphs: np.asarray(graphs)[second], graphs)
        return arrays_hash((parts.federation.data, levels, of_second))

    before = drawn(config)
    for name, value in OTHERS.items():
        section, _, last = name.partition(".")
        if section == group:
            if last == "redraw_every" and kind in CHANGE_BY_THEMSELVES:
                value = 2
            changed = replace(getattr(config, group), **{last: value})
            after = drawn(replace(config, **{group: changed}))
            assert (after == before) == (switches(config)[name] is not None), name


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-300])
def test_numbers_that_computations_do_not_see_are_refused(value: float) -> None:
    """In float32 they are 0 or infinite."""
    default = Config()
    sections = {one.name: getattr(default, one.name) for one in fields(default)}
    sections = {name: one for name, one in sections.items() if is_dataclass(one)} | {"": default}
    tried = 0
    for settings in sections.values():
        for name, hint in get_type_hints(type(settings)).items():
            if hint in (float, float | None):
                with pytest.raises(
                    InvalidSetting, match=f"{name} must be .*not {escape(str(value))}"
                ):
                    replace(settings, **{name: value})
                tried += 1
    assert tried > 20
