"""The method that computed a run's contributions: a registered one, or the user's own rule."""

from dataclasses import dataclass

from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.methods.facts import About
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.whole_run import without_keeping
from trip_jax.results.meaning import RULE, about_method
from trip_jax.results.result import Result


@dataclass(frozen=True)
class MethodOfRun:
    """The method that computed the contributions of a run.

    Attributes:
        name: the name of the method; for a user's own rule that of its class, after `RULE`.
        about: its facts; if a user's own rule states none, even its unit is unknown.
        normalization: "paper" or "efficient", as of `Contribution`.
        semivalue: the name of the semivalue that contributions are, if they are one.
    """

    name: str
    about: About
    normalization: str
    semivalue: str

    @classmethod
    def of(cls, result: Result) -> "MethodOfRun":
        """The method of a result: the rule that was given, else what its settings name."""
        said = result.contribution
        name, scaling, semivalue = said.method, said.scaling, said.semivalue
        rule = result.federation.settings.rules.get("contribute")
        rule = without_keeping(rule)
        if rule is None or type(rule) is METHODS[name]:
            scaling = getattr(rule, "normalization", scaling)
            return cls(name, about_method(name), scaling, getattr(rule, "semivalue", semivalue))
        registered = [one for one in METHODS if METHODS[one] is type(rule)]
        name = registered[0] if registered else f"{RULE}{type(rule).__name__}"
        says = isinstance(rule, Method) and hasattr(rule, "unit")
        about = rule.about() if says else about_method(name)
        scaling = getattr(rule, "normalization", "efficient")
        return cls(name, about, scaling, getattr(rule, "semivalue", "shapley"))
