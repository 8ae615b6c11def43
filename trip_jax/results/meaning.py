"""What the numbers of a run mean, in plain words."""

from collections.abc import Mapping
from typing import Any

from trip_jax.protocol.methods.facts import GAIN, TRIP, About, Sees, Unit, When
from trip_jax.shapley.semivalues import in_words

RULE = "rule "
"""How the name of a method begins that is no registered one, but a rule of the user's own."""
TEST, OWN = "test", "own"
"""The attribute of results.nc that says that clients were judged on test sets of their own."""

OF_OWN_TESTS = (
    "Each client's models are judged on test examples of its own. Contributions to one client "
    "compare with each other; those to different clients are measured on different examples, and "
    "a score is their mean."
)

MISSING = (
    "Equation 4 of the paper, as printed, lacks the factor 1/m, where m counts the clients whose "
    "models are mixed and the one that mixes: it gives m times"
)

UTILITY_GAIN = "utility_gain"
"""The attribute of results.nc with the name of a gain in the utility; older files have none."""


def unit(attributes: Mapping[str, Any]) -> str:
    """What contributions are measured in, for axes and legends.

    Args:
        attributes: of results.nc.
    """
    measured = gain(attributes)
    return f"m × {measured}" if _printed(attributes) else measured


def gain(attributes: Mapping[str, Any]) -> str:
    """What contributions are measured in, but for a factor of m."""
    named = attributes.get(UTILITY_GAIN)
    return _gain(attributes["contribution_utility"], about(attributes).unit, named)


def _gain(utility: str, unit: Unit, named: str | None = None) -> str:
    """What contributions by a utility and a method's unit are measured in.

    Args:
        named: the name of a gain in the utility, where a file holds it.
    """
    if unit.words != GAIN.words:
        return unit.words
    return str(named) if named else utility_gain(utility)


def utility_gain(utility: str) -> str:
    """The name of a gain in a utility."""
    from trip_jax.learning.utilities import quantity  # which imports JAX

    return quantity(utility).gain


def first_of_models(utility: str) -> str:
    """What the variable `accuracy` of a run of this utility says of models."""
    from trip_jax.learning.utilities import columns

    return utility_gain(columns(utility)[0])


def unit_symbol(utility: str, unit: Unit) -> str:
    """The unit of contributions by one utility, for arrays."""
    from trip_jax.learning.utilities import quantity

    return quantity(utility).symbol if unit.words == GAIN.words else unit.symbol


def method(attributes: Mapping[str, Any]) -> str:
    """The name of the method that found the contributions of a run."""
    return str(attributes.get("contribution_method", TRIP))


def about(attributes: Mapping[str, Any]) -> About:
    """The facts of the method that computed the contributions, from attributes of results.nc."""
    return About.read(attributes) or about_method(method(attributes))


def about_method(name: str) -> About:
    """The facts of a registered method; of any other nothing is known, not even the unit."""
    from trip_jax.protocol.contributions import METHODS  # which imports JAX

    if name in METHODS:
        return METHODS[name].about()
    return About(Unit(f"the unit of {called(name)}"))


def called(name: str) -> str:
    """What a method is called in sentences: a setting, or a rule that a user gave in its place."""
    return name if name.startswith(RULE) else f"contribution.method={name}"


def reported_by(attributes: Mapping[str, Any]) -> str:
    """By which method clients reported in each round."""
    return about(attributes).reports_as or method(attributes)


def at_the_end(attributes: Mapping[str, Any]) -> bool:
    """Whether contributions were computed when the run was over, and not in its rounds."""
    return about(attributes).told == When.AT_THE_END


def value(attributes: Mapping[str, Any]) -> str:
    """Which value contributions are; mind that m may differ between clients."""
    semivalue = _semivalue(attributes)
    return f"m × {semivalue} (Eq. 4 as printed)" if _printed(attributes) else semivalue


def _printed(attributes: Mapping[str, Any]) -> bool:
    """Whether contributions of a run are m times a value, as in Eq. 4 as printed."""
    return _has_factor(attributes["normalization"], about(attributes).unit)


def _has_factor(normalization: str, unit: Unit) -> bool:
    """Whether contributions are m times a value, as gains by Eq. 4 as printed are."""
    return normalization == "paper" and unit.words == GAIN.words


def _semivalue(attributes: Mapping[str, Any]) -> str:
    if method(attributes) != TRIP:
        return f"value by {called(method(attributes))}"
    return in_words(str(attributes.get("semivalue", "shapley")))  # the only one of older versions


def in_a_sentence(utility: str, normalization: str, method: str = TRIP) -> str:
    """What a client's score is, in one sentence for the end of a run."""
    unit = about_method(method).unit
    times = "m times " * _has_factor(normalization, unit)
    size = ", m being the size of a neighbourhood (Eq. 4 as printed)" * bool(times)
    return (
        "A score is what a client contributed to the final models on average, "
        f"in {times}{_gain(utility, unit)}{size}."
    )


def explain(attributes: Mapping[str, Any]) -> list[str]:
    """What a contribution is, how it is found, and what score and share are; a paragraph each."""
    found = _semivalue(attributes)
    contribution = (
        "The contribution of client j to client i says how much of what i's model can do came from "
        f"j's training, directly or through others. It is measured in {gain(attributes)}."
    )
    said = about(attributes)
    explained = f" {said.explained}" if said.explained else ""
    if said.reports_as:
        models = " and of the models of all rounds" * (said.sees == Sees.ALL_MODELS)
        scale = (
            f"In each round clients reported as by contribution.method={said.reports_as}. The "
            f"{found} was made of their reports{models} when the run was over.{explained} A row "
            "need not sum to what the model gained."
        )
        if _printed(attributes):
            scale += f" {MISSING} what a report says, and so m times what was made of reports."
    elif attributes["normalization"] == "paper":
        scale = (
            f"In each round a client finds the {found} of everyone whose model it mixes into its "
            f"own. {MISSING} the {found}. Contributions can therefore exceed 1, and a row does "
            "not sum to what the model gained. Compare them with each other, or read the shares."
        )
    elif at_the_end(attributes):
        scale = f"The {found} was found when the run was over, from {said.sees}.{explained}"
    elif method(attributes) != TRIP:
        scale = (
            f"In each round a client finds the {found} for everyone whose model it mixes into its "
            f"own.{explained}"
        )
    else:
        scale = (
            f"In each round a client finds the {found} of everyone whose model it mixes into its "
            "own, with the factor 1/m that Equation 4 of the paper lacks as printed "
            "(contribution.normalization=efficient)."
        )
    share = (
        "The share is the contribution in per cent of its row, that is, of everything that client "
        "i's model was given. A row without a positive sum has no shares. A client's score is the "
        "mean of its contributions to all clients' models, and its share is in per cent of all "
        "clients' scores."
    )
    own = [OF_OWN_TESTS] * (attributes.get(TEST) == OWN)
    return [contribution, scale, share, *own]
