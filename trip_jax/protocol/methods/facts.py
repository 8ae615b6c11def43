"""What a method says of itself: the unit of contributions, when they are known, and costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeAlias

from trip_jax.settings.renamed import renamed


@dataclass(frozen=True)
class Unit:
    """The unit in which a method measures contributions.

    Attributes:
        words: for axes and sentences, as in "It is measured in cosines summed over rounds."
        symbol: the unit of arrays in results.nc, "1" for numbers without one.
    """

    words: str
    symbol: str = "1"


GAIN = Unit("gains in utility")
"""The unit of methods that measure gains in the utility that `contribution.utility` names.

Words and symbol are then those of the utility: "decrease of test loss in nats" and "nat" for loss.
"""


class When(StrEnum):
    """When a method knows contributions: in each round, or when the run is over."""

    EACH_ROUND = "in each round"  # each client reports its LCV, and Eq. 3 traces these
    AT_THE_END = "when the run is over"


__getattr__ = renamed(__name__, Told="trip_jax.protocol.methods.facts.When")


TRIP = "trip"
"""The paper's method: the default, and the only one of older versions."""

PAGE = "The page Equations of the methods in the documentation defines it."
"""How a method of this package is explained that says no more of itself."""


class Sees(StrEnum):
    """What whoever computes contributions must see beside the models that it learns from."""

    WEIGHTS = "mixing weights alone"
    NEIGHBOURS = "the models of neighbours"
    REPORTS = "the reports of all rounds"
    PREDICTIONS = "what the models of all rounds say of the test set"
    ALL_MODELS = "the models of all rounds"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a federation that costs depend on."""

    m: int  # members of the client's neighbourhood, itself included
    n: int  # clients
    P: int  # parameters of a model
    budget: float = float("inf")  # `contribution.budget`
    Q: int = 0  # logits of a model on the test set: examples x classes


@dataclass(frozen=True)
class Amount:
    """A number that depends on sizes.

    Attributes:
        formula: in the fields of `Sizes`, for tables: "min(2^m, budget)".
        of: computes it.
    """

    formula: str
    of: Callable[[Sizes], float]


Number: TypeAlias = Amount | int


@dataclass(frozen=True)
class About:
    """What readers of a run's contributions need to know of the method that computed them.

    Attributes:
        unit: what contributions are measured in.
        told: when they were known.
        sees: what whoever computed them saw.
        reports_as: the method by which clients reported in each round, if that was another.
        explained: a sentence on what contributions are, or "".
    """

    unit: Unit
    told: str = When.EACH_ROUND
    sees: str = Sees.NEIGHBOURS
    reports_as: str = ""
    explained: str = ""

    def attributes(self) -> dict[str, str]:
        """These facts as attributes of results.nc; what is empty has none."""
        said = {
            "unit": self.unit.words,
            "unit_symbol": self.unit.symbol,
            "told": str(self.told),
            "sees": str(self.sees),
            "reports_as": self.reports_as,
            "explained": self.explained,
        }
        return {f"{PREFIX}{name}": text for name, text in said.items() if text}

    @classmethod
    def read(cls, attributes: Mapping[str, Any]) -> "About | None":
        """The facts that attributes of results.nc hold; None if an older version wrote them."""
        said = {
            name.removeprefix(PREFIX): str(value)
            for name, value in attributes.items()
            if name.startswith(PREFIX)
        }
        if "unit" not in said:
            return None
        unit = Unit(said["unit"], said.get("unit_symbol", "1"))
        others = ("told", "sees", "reports_as", "explained")
        return cls(unit, **{name: said[name] for name in others if name in said})


PREFIX = "contribution_"
"""The prefix of the attributes of results.nc that say what contributions are."""


@dataclass(frozen=True)
class Costs:
    """What a method costs a client in a round, and once when the run is over.

    An integer stands for an amount that depends on nothing.

    Attributes:
        evaluations: models evaluated on the test set; 1 says how good the next model is.
        gradients: passes over the test set for gradients of a smooth utility.
        n_bytes: received or sent beside what learning sends: models before training at four bytes
            a parameter, and the report.
        final_evaluations: models evaluated for a client when the run is over.
        final_gradients: likewise gradients.
    """

    evaluations: Number = 1
    gradients: Number = 0
    n_bytes: Number = 0
    final_evaluations: Number = 0
    final_gradients: Number = 0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int):
                object.__setattr__(self, one.name, _always(value))

    def amount(self, name: str) -> Amount:
        """One of the fields, by name, as an amount that depends on sizes."""
        found: Amount = getattr(self, name)
        return found

    @property
    def needs_gradients(self) -> bool:
        """Whether the utility must have gradients, which accuracy has not."""
        return any(self.amount(name).formula != "0" for name in ("gradients", "final_gradients"))


def _always(number: int) -> Amount:
    return Amount(str(number), lambda sizes: number)


COALITIONS = Amount("min(2^m, budget)", lambda sizes: min(2**sizes.m, sizes.budget))
"""All coalitions of a neighbourhood, or those that are drawn."""

COALITIONS_OF_ALL = Amount("min(2^n, budget)", lambda sizes: min(2**sizes.n, sizes.budget))
"""All coalitions of the federation, or those that are drawn."""

REPORT = Amount("4 m", lambda sizes: 4 * sizes.m)
"""Bytes of a report: a number for each member."""

MODELS_AND_REPORT = Amount(
    "4 P (m - 1) + 4 m", lambda sizes: 4 * sizes.P * (sizes.m - 1) + 4 * sizes.m
)
"""Bytes of the neighbours' models before training, and of a report."""

UPDATE = Amount("4 P", lambda sizes: 4 * sizes.P)
"""Bytes of a client's update, for whoever sees all models."""

PREDICTIONS = Amount("4 Q", lambda sizes: 4 * sizes.Q)
"""Bytes of the logits of a client's trained and of its next model, in float16."""
