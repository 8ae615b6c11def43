"""The public names and the forms of files: what a change of version must say.

A name that is left out of a list here is kept for one version with a warning (`_OLD_NAMES`).
"""

import json
import re
from pathlib import Path

import pytest

import trip_jax
import trip_jax.topology
import trip_node.node
import trip_node.rewards
from trip_jax.results import dataset
from trip_jax.runs import checkpoints
from trip_node.node import admission, gossip, predictions, report

ROOT = Path(__file__).parent.parent

SIMULATOR = """
    Adversary Aggregation ChannelConfig ClientData Config Contribution Dataset DatasetConfig Defence
    Distribution Diverged GroundTruth InvalidSetting Model ModelConfig Observer Participation
    Partition Privacy ProtocolConfig Record Reports Result Run ScheduleConfig Simulation Split State
    TopologyConfig Training Trust __version__ centralised_truth cnn decentralised_truth distribute
    from_flax load_dataset load_run load_sweep lora mlp save_run topology trace
"""
TOPOLOGY = """
    DURATIONS FAMILIES LATENCIES PARTICIPATIONS SCHEDULES WEIGHTS Arcs Neighbourhoods Participation
    ScheduleConfig Topology TopologyConfig WeightRule build from_config with_events
"""
NODE = "LocalEvaluator LocalPredictor Predictions Report"
REWARDS = "DEFAULT PAYMENTS excluded in_cents model_shares payments reputations rewarded"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (trip_jax, SIMULATOR),
        (trip_jax.topology, TOPOLOGY),
        (trip_node.node, NODE),
        (trip_node.rewards, REWARDS),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_public_names_of_a_package(module: object, names: str) -> None:
    assert sorted(module.__all__) == sorted(names.split())  # type: ignore[attr-defined]
    for name in names.split():
        assert getattr(module, name) is not None


def test_the_schemas_of_files_and_messages() -> None:
    """A number rises when a field changes its meaning, and then the older one stays readable."""
    assert dataset.SCHEMA == "trip_jax.results/1"
    assert checkpoints.SCHEMA == "trip_jax.checkpoint/1"
    assert (report.WITHOUT_SENT_TO, report.SCHEMA) == ("trip_jax.report/1", "trip_jax.report/2")
    schemas = predictions.WITHOUT_TESTIMONIES, predictions.SCHEMA
    assert schemas == ("trip_jax.predictions/1", "trip_jax.predictions/2")
    assert (admission.KEYS, admission.CLOSE) == ("trip_jax.keys/1", "trip_jax.close/1")
    assert gossip.PROOF == "trip_jax.equivocation/1"


def test_the_version_is_the_same_wherever_it_stands() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    (cited,) = re.findall(r"^version: (.*)$", citation, re.MULTILINE)
    described = json.loads((ROOT / "codemeta.json").read_text())
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    newest = [one for one in newest if one != "Unreleased"]
    assert {cited, described["version"], newest[0]} == {trip_jax.__version__}
