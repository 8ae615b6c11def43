"""results.nc: a result as labelled arrays, each of which says what it is and in which unit."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from trip_jax.data.partition import Partition
from trip_jax.learning.utilities import shown
from trip_jax.results.by_contributor import by_contributor
from trip_jax.results.meaning import (
    OWN,
    TEST,
    UTILITY_GAIN,
    about,
    about_method,
    method,
    reported_by,
    unit_symbol,
    utility_gain,
)
from trip_jax.results.method_of_run import MethodOfRun
from trip_jax.results.result import Result
from trip_jax.results.variables import COORDINATES, DECLARED, VARIABLES
from trip_jax.results.view import ResultView, local

if TYPE_CHECKING:
    import xarray

SCHEMA = "trip_jax.results/1"
"""The form of results.nc; its number rises when a name or a meaning changes. Files of version 0.1.0
have none and are read."""


def to_dataset(result: Result, federation: Partition, title: str) -> "xarray.Dataset":
    """A result as the labelled arrays that `VARIABLES` declares; slots follow `members`."""
    import xarray

    method, utility = MethodOfRun.of(result), shown(result.contribution.utility)
    data = xarray.Dataset(
        attrs={
            "title": title,
            "contribution_utility": utility,
            UTILITY_GAIN: utility_gain(utility),
            "contribution_method": method.name,
            "normalization": method.normalization,
            "semivalue": method.semivalue,
            "version": version("trip-jax"),
            "schema": SCHEMA,
        }
        | method.about.attributes(),
    )
    view = ResultView(result, federation, data)
    for where, declared in ((data.coords, COORDINATES), (data, VARIABLES)):
        for one in declared:
            if (values := one.values(view)) is not None:
                where[one.name.format_map(view.words)] = one.named(values, view.words)
    if federation.data.tests is not None:
        data.attrs[TEST] = OWN
    if (privacy := result.guarantee) is not None:
        data.attrs |= {"privacy_epsilon": privacy.epsilon, "privacy_delta": privacy.delta}
    return data


def lcv_by_contributor(data: "xarray.Dataset", utility: str | None = None) -> "xarray.DataArray":
    """Local contributions of all rounds by the clients they speak of, [round, client, contributor].

    Args:
        data: results.nc of a run.
        utility: "accuracy", "loss" or what `columns` names third; that of the run if None.

    Returns:
        psi^(i,t)_j as it was before any lie; NaN where j sends nothing to i.
    """
    import xarray

    utility = utility or str(data.attrs["contribution_utility"])
    reporter = reported_by(data.attrs)
    unit = about(data.attrs).unit if reporter == method(data.attrs) else about_method(reporter).unit
    one = DECLARED["lcv_by_contributor"]
    words = {
        "lcv": local(reporter),
        "utility": utility,
        "unit of reports": unit_symbol(utility, unit),
    }
    dims, values, attributes, _ = one.named(by_contributor(data, utility), words)
    coords = {name: data[name] for name in dims}
    return xarray.DataArray(values, dims=dims, coords=coords, name=one.name, attrs=attributes)
