"""Whatever results.nc holds is declared in one table, and is there as the table says."""

import numpy as np
import pytest

from tests.conftest import tiny
from trip_jax.data.partition import Partition
from trip_jax.protocol.state import Record
from trip_jax.results.dataset import to_dataset
from trip_jax.results.variables import COORDINATES, DECLARED, VARIABLES, OfRecord
from trip_jax.runs.fitting import by_new_names


def test_results_are_the_declared_variables() -> None:
    simulation = tiny()
    data = to_dataset(
        simulation.run(), Partition(simulation.data, np.zeros(simulation.n), "share"), "a run"
    )
    third_utility = str(data.utility.values[-1])
    found = {third_utility: "{third utility}"}
    sizes = {"round", "client", "contributor", "graph", "member", "utility"}
    for name, array in data.variables.items():
        one = DECLARED[found.get(str(name), str(name))]
        assert array.dims == one.dims, name
        assert array.attrs["long_name"] and "{" not in "".join(array.attrs.values()), name
        assert set(one.dims) <= sizes, name
    assert data.level.attrs == {"long_name": "share", "units": "1"}
    assert len(DECLARED) == len(COORDINATES) + len(VARIABLES)  # no name twice


def test_a_record_holds_what_its_variables_read() -> None:
    """Each field of a round's record is in results.nc, but for what a method keeps for itself."""
    read: set[str] = set()

    class Spy:
        def __getattr__(self, name: str) -> np.ndarray:
            read.add(name)
            return np.zeros((1, 2, 3))

    for one in VARIABLES:
        if isinstance(one, OfRecord):
            one.of(Spy())
    assert read == Record.__dataclass_fields__.keys() - {"kept"}


def test_old_names_are_found_with_a_warning() -> None:
    yes = np.array([True, False])
    record = Record(**dict.fromkeys(Record.__dataclass_fields__, None) | {"filtered": yes})
    with pytest.warns(DeprecationWarning, match=r"Record\.accepted .* use ~Record\.filtered"):
        np.testing.assert_array_equal(record.accepted, ~yes)
    with pytest.raises(AttributeError, match="no attribute 'refused'"):
        _ = record.refused


def test_checkpoints_of_older_versions_have_other_names() -> None:
    yes = np.array([True, False])
    old = {"records": {"arrived": yes, "accepted": ~yes, "lcv_error": yes + 1.5, "lcv": yes}}
    new = {
        "records": {"unsent": ~yes, "filtered": yes, "lcv_standard_error": yes + 1.5, "lcv": yes}
    }
    for arrays in (old, new):
        found = by_new_names(arrays)["records"]
        assert found.keys() == new["records"].keys()
        for name, array in new["records"].items():
            np.testing.assert_array_equal(found[name], array)
    damaged = by_new_names({"records": {"arrived": np.array(["x"])}})
    assert list(damaged["records"]) == ["arrived"]
