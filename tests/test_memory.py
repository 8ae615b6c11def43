"""What is larger than memory or arrays is refused before anything is allocated."""

import resource
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest.mock import Mock

import jax
import numpy as np
import psutil
import pytest

import trip_jax.learning.memory
from tests.conftest import TINY, Command, Hearing, rarely, refusal, tiny
from trip_jax import Config, Contribution, InvalidSetting, Training, mlp
from trip_jax.learning.memory import PlannedMemory
from trip_jax.settings import LARGEST
from trip_jax.settings.capacity import GIB, Capacity, of_control_groups, of_device, of_process
from trip_jax.settings.errors import Diverged


def sections(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    yield prefix, section
    for field in fields(section):
        if is_dataclass(getattr(section, field.name)):
            yield from sections(getattr(section, field.name), f"{prefix}{field.name}.")


def integers() -> Iterator[tuple[str, Any, str]]:
    """The full name, the section and the name in it of every setting that is an integer."""
    for prefix, section in sections(Config()):
        for name, hint in get_type_hints(type(section)).items():
            if int in (hint, *get_args(hint)) and name not in ("devices", "process"):
                yield f"{prefix}{name}", section, name


@pytest.mark.parametrize("value", [2**32, 2**70, 10**23, 2.5, 1e23, True, "3", -1, float("nan")])
def test_integers_are_integers_that_arrays_can_hold(value: Any) -> None:
    found = list(integers())
    assert len(found) > 15
    for name, section, last in found:
        if isinstance(getattr(section, last), tuple):
            value = (value,)
        if last == "clients":  # of which there must be some, which a federation knows
            continue
        try:
            replace(section, **{last: value})
        except InvalidSetting as refusal:
            assert name.split(".")[0] in str(refusal) and "\n" not in str(refusal)
        else:
            raise AssertionError(f"{name}={value} is taken")


@pytest.mark.parametrize(
    "setting",
    [
        f"training.rounds={10**23}",
        f"training.batch_size={10**12}",
        f"training.local_epochs={10**14}",
        f"contribution.coalition_batch={10**17}",
        f"dataset.train_size={2**64}",
        f"model.hidden=[{2**31}]",
    ],
)
def test_on_the_command_line_too(setting: str) -> None:
    name = setting.partition("=")[0]
    assert f"{name} must be at most {LARGEST}" in refusal(setting)


def test_batches_are_no_larger_than_what_there_is() -> None:
    training = Training(rounds=1, local_epochs=1, batch_size=20, learning_rate=0.2)
    plain = tiny(training=training).run()
    large = tiny(
        training=replace(training, batch_size=LARGEST, client_batch=LARGEST),
        contribution=Contribution(coalition_batch=LARGEST),
    ).run()
    np.testing.assert_allclose(large.models, plain.models, atol=1e-6)
    np.testing.assert_allclose(large.phi, plain.phi, atol=0.03)  # one of 40 examples


@pytest.fixture
def nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*_: Any) -> None:
        raise AssertionError("parameters are drawn")

    monkeypatch.setattr("trip_jax.learning.flat_model.FlatModel.drawn", draw)


@pytest.mark.usefixtures("nothing_drawn")
@pytest.mark.parametrize("width", [50_000_000, rarely(100_000_000), LARGEST])
def test_models_larger_than_memory_are_refused_before_they_are_drawn(
    command: Command, tmp_path: Path, width: int
) -> None:
    outcome = command(*TINY, f"model.hidden=[{width}]", "memory_limit=32", "hydra.run.dir=run")
    assert "GiB are needed beside" in outcome.error and "memory_limit allows 32" in outcome.error
    assert "lower n_clients, the model's widths" in outcome.error
    assert "planned" not in outcome.out and not (tmp_path / "run" / "rounds.csv").exists()
    with pytest.raises(InvalidSetting, match="Memory is not enough"):
        tiny(model=mlp(3, (width,)), memory_limit=32)


def test_rounds_larger_than_memory_are_refused_before_they_begin(
    command: Command, tmp_path: Path
) -> None:
    held = psutil.Process().memory_info().rss / GIB
    epochs = f"training.local_epochs={LARGEST}"
    outcome = command(*TINY, epochs, f"memory_limit={held + 1}", "hydra.run.dir=run")
    assert "lower n_clients, the model's widths, training.local_epochs" in outcome.error
    assert not (tmp_path / "run" / "rounds.csv").exists()


def test_who_knows_better_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trip_jax.learning.memory, "of_device", lambda _: Capacity(1, "this machine")
    )
    with pytest.raises(InvalidSetting, match=r"this machine allows 0\.0 MiB"):
        tiny()
    planned: list[PlannedMemory | None] = []
    heard = Hearing(on_start=planned.append, on_round=lambda _: True)
    tiny(memory_limit=1e6).run(heard)
    assert planned[0] and 0 < planned[0].rounds < planned[0].total < GIB * 1e6


def test_a_limit_is_no_part_of_the_result() -> None:
    with pytest.raises(InvalidSetting, match="memory_limit must be a number above 0"):
        Config(memory_limit=0)
    (field,) = (field for field in fields(Config) if field.name == "memory_limit")
    assert field.metadata["execution"]


@pytest.mark.parametrize(
    ("groups", "files", "least"),
    [
        ("0::/a/b\n", {"a/memory.max": "5", "a/b/memory.max": "max"}, 5),
        ("0::/a/b\n", {"memory.max": "7"}, 7),  # seen from inside a container
        ("4:cpu,memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "6"}, 6),
        ("4:memory:/a\n0::/\n", {"memory/memory.limit_in_bytes": "6", "memory.max": "4"}, 4),
        ("1:cpu:/\n", {}, inf),
        (None, {}, inf),
    ],
)
def test_the_least_limit_of_control_groups_counts(
    tmp_path: Path, groups: str | None, files: dict[str, str], least: float
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    if groups is not None:
        (tmp_path / "groups").write_text(groups)
    assert of_control_groups(tmp_path / "groups", tmp_path) == least


def test_what_other_processes_hold_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < of_process().size <= psutil.virtual_memory().total
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Mock(available=1000))
    held = psutil.Process().memory_info().rss
    there = of_process()
    assert there.whose == "what other processes leave of this machine"
    assert held / 2 < there.size < 2 * held


def test_a_limit_on_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    there, memory = of_process(), psutil.Process().memory_info()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (memory.vms + 1000, 0))
    limited = of_process()
    assert limited.whose == "ulimit -v" and limited.size < there.size


def test_a_device_tells_its_own_limit() -> None:
    device = Mock(spec=jax.Device, platform="gpu", device_kind="H100")
    device.memory_stats.return_value = {"bytes_limit": 80 * GIB}
    assert of_device(device) == Capacity(80 * GIB, "each H100")
    assert of_device(jax.devices()[0]).whose == of_process().whose


def test_divergence_is_still_told_apart() -> None:
    """Planning comes before the first state, whose numbers may be anything."""
    with pytest.raises(Diverged):
        tiny(training=Training(rounds=1, learning_rate=1e30)).run()
