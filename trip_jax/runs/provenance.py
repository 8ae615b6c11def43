"""What a result depends on and where it came from: settings, inputs, versions, revision."""

import hashlib
import json
import platform
import subprocess
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trip_jax.config import Config
from trip_jax.learning.utilities import terms
from trip_jax.results.result import Result
from trip_jax.settings.own_code import own_file
from trip_jax.simulation import Simulation

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "networkx", "hydra-core")

RENAMED = {"aggregation": "aggregation.kind", "channel": "channel.kind"}
"""Settings of older versions, and what they are called now."""


def result_settings(config: Any, prefix: str = "") -> dict[str, Any]:
    """The settings that results depend on, by their names on the command line.

    Args:
        config: a `Config`, or a section of one with its name and a dot as prefix.
    """
    settings: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if "execution" in field.metadata:
            continue
        if is_dataclass(value):
            settings |= result_settings(value, f"{prefix}{field.name}.")
        else:
            settings[prefix + field.name] = value
    return settings


def federation_settings(result: Result) -> dict[str, Any]:
    """The settings of a run from Python by their names in a configuration, and what else differs.

    Data and graphs are named by the first digits of their SHA-256, and by the settings by which
    they were made, where known; rules by their text.
    """
    federation = result.federation
    settings = replace(federation.settings, defence=federation.defence)
    given = result_settings(replace(settings, rules={}, optimizer=None))
    del given["rules"], given["seed"], given["optimizer"]
    if settings.optimizer is not None:
        given["training.optimizer"] = _in_text(settings.optimizer.update)
    rules = {f"rules.{name}": _in_text(rule) for name, rule in settings.rules.items()}
    made_by: dict[str, Any] = {}
    for section, config in federation.made_by.items():
        made_by |= result_settings(config, f"{section}.")
    hashes = {"data": arrays_hash(federation.data), "topology": arrays_hash(federation.topology)}
    return {
        "n_clients": federation.n,
        "seed": settings.seed,
        **given,
        **rules,
        **made_by,
        "model.parameters": int(result.models.shape[1]),
        **{f"{name}.sha256": found[:12] for name, found in hashes.items()},
    }


def _in_text(rule: Any) -> str:
    """A rule as text: its fields, or its name where `repr` has an address in memory."""
    if is_dataclass(rule):
        return repr(rule)
    return f"{getattr(rule, '__module__', '')}.{getattr(rule, '__qualname__', type(rule).__name__)}"


def json_hash(value: Any) -> str:
    """SHA-256 of anything that JSON can write, whatever the order of names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def arrays_hash(tree: Any) -> str:
    """SHA-256 of the names, shapes, types and bytes of a tree's arrays."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def inputs_hash(simulation: Simulation) -> str:
    """SHA-256 of the data, the graphs and the initial model, and of what clients are called."""
    model = simulation.learner.model
    arrays = simulation.data, simulation.topology, model.theta, *model.beside
    found = arrays_hash(arrays)
    return json_hash([found, simulation.names]) if simulation.names else found


def files_hash(config: Config) -> dict[str, str]:
    """SHA-256 of the files that settings name for examples and the user's own code, by setting.

    What is not there is left out.
    """
    named = {"dataset.path": config.dataset.path, "dataset": own_file(config.dataset.name)}
    for term in terms(config.contribution.utility):
        named[f"contribution.utility={term}"] = own_file(term)
    found = {}
    for setting, path in named.items():
        if path and Path(path).is_file():
            with Path(path).open("rb") as file:
                found[setting] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def git_revision() -> str | None:
    """The commit of a checkout, with "-dirty" where files differ from it; None elsewhere."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
