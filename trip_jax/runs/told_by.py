"""By what a run's contributions are: a registered method, or a rule of the user's own."""

from dataclasses import dataclass

from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.methods.facts import About
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.whole_run import Keeping
from trip_jax.runs.meaning import RULE, about_method
from trip_jax.simulation.history import Result


@dataclass(frozen=True)
class ToldBy:
    """What told the contributions of a run.

    Attributes:
        name: of the method; of a user's own rule that of its class, after `RULE`.
        about: what it says of itself; of a rule that says nothing not even the unit is known.
        normalization: "paper" or "efficient", as of `Contribution`.
        semivalue: that contributions are, where they are one.
    """

    name: str
    about: About
    normalization: str
    semivalue: str

    @classmethod
    def of(cls, result: Result) -> "ToldBy":
        """What told the contributions of this result: its rule, else what its settings name."""
        said = result.contribution
        name, scaling, semivalue = said.method, said.scaling, said.semivalue
        rule = result.federation.settings.rules.get("contribute")
        rule = rule.method if isinstance(rule, Keeping) else rule
        if rule is None or type(rule) is METHODS[name]:
            scaling = getattr(rule, "normalization", scaling)
            return cls(name, about_method(name), scaling, getattr(rule, "semivalue", semivalue))
        registered = [one for one in METHODS if METHODS[one] is type(rule)]
        name = registered[0] if registered else f"{RULE}{type(rule).__name__}"
        says = isinstance(rule, Method) and hasattr(rule, "unit")
        about = rule.about() if says else about_method(name)
        scaling = getattr(rule, "normalization", "efficient")
        return cls(name, about, scaling, getattr(rule, "semivalue", "shapley"))
