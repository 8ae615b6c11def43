"""What the numbers of a run mean, in plain words."""

from collections.abc import Mapping
from typing import Any

GAINS = {
    "accuracy": "test accuracy",
    "loss": "decrease of test loss in nats",
    "probability": "probability of the true class",
    "margin": "margin of the true class's probability",
}
UNITLESS = {
    "weights": "mixing weights summed over rounds",
    "cgsv": "cosines summed over rounds",
    "shapfed": "cosines summed over rounds",
    "fedif": "places between a round's least and most influence, summed",
    "trip_and_weights": "means of rows of length one",
    "trip_and_reconstruction": "means of rows of length one",
}
"""What methods measure contributions in that measure no utility."""

NUMBER, NAT = "1", "nat"  # a number without unit, and that of a loss

TRIP = "trip"  # the method that has semivalues
REPLAYS = ("reconstruction", "renormalised", "surrogate", "predictions")
PREDICTED = "what the models of all rounds say of the shared test set"
FROM_REPORTS = ("shrunk", "trip_and_weights", "trip_and_reconstruction")
"""Methods whose clients report as by trip."""

UPON_MODELS = ("trip_and_reconstruction",)
"""Those that look at models of all rounds, too."""

MISSING = (
    "Equation 4 of the paper, as printed, lacks the factor 1/m, where m counts the clients whose "
    "models are mixed and the one that mixes: it gives m times"
)

AT_THE_END = (*REPLAYS, *FROM_REPORTS, "dice_multi_hop")

SEMIVALUES = {"shapley": "Shapley value", "banzhaf": "Banzhaf value", "loo": "leave-one-out value"}


def unit(attributes: Mapping[str, Any]) -> str:
    """What contributions are measured in, for axes and legends.

    Args:
        attributes: of results.nc.
    """
    measured = gain(attributes)
    return f"m × {measured}" if _printed(attributes) else measured


def gain(attributes: Mapping[str, Any]) -> str:
    """What contributions are measured in, but for a factor of m."""
    return _gain(attributes["contribution_utility"], method(attributes))


def _gain(utility: str, told_by: str) -> str:
    if told_by in UNITLESS:
        return UNITLESS[told_by]
    *first, last = (GAINS[name] for name in utility.split("+"))
    return f"the mean of {', '.join(first)} and {last}" if first else last


def of_models(utility: str) -> str:
    """What the third utility of a run says of a client's model."""
    if utility == "probability":
        return "mean probability that the client's model gives to the true class"
    return f"{utility} of the client's model on the test set"


def units(utility: str, told_by: str) -> str:
    """The unit of contributions, for arrays: of one utility, by one method."""
    return NAT if utility == "loss" and told_by not in UNITLESS else NUMBER


def method(attributes: Mapping[str, Any]) -> str:
    """By which contributions were told."""
    return str(attributes.get("contribution_method", TRIP))  # the only one of older versions


def at_the_end(attributes: Mapping[str, Any]) -> bool:
    """Whether contributions were told when the run was over, and not in its rounds."""
    return method(attributes) in AT_THE_END


def value(attributes: Mapping[str, Any]) -> str:
    """Which value contributions are; mind that m may differ between clients."""
    semivalue = _semivalue(attributes)
    return f"m × {semivalue} (Eq. 4 as printed)" if _printed(attributes) else semivalue


def _printed(attributes: Mapping[str, Any]) -> bool:
    """Whether contributions have the factor m."""
    return attributes["normalization"] == "paper" and method(attributes) not in UNITLESS


def _semivalue(attributes: Mapping[str, Any]) -> str:
    if method(attributes) != TRIP:
        return f"value by contribution.method={method(attributes)}"
    name = attributes.get("semivalue", "shapley")  # the only one of older versions
    return SEMIVALUES.get(name, f"semivalue {name!r}")


def in_a_sentence(utility: str, normalization: str, told_by: str = TRIP) -> str:
    """What a score is."""
    times = "m times " * (normalization == "paper" and told_by not in UNITLESS)
    size = ", m being the size of a neighbourhood (Eq. 4 as printed)" * bool(times)
    return (
        "A score is what a client contributed to the final models on average, "
        f"in {times}{_gain(utility, told_by)}{size}."
    )


def explain(attributes: Mapping[str, Any]) -> list[str]:
    """What a contribution, a score and a share are; a paragraph each."""
    found = _semivalue(attributes)
    contribution = (
        "The contribution of client j to client i says how much of what i's model can do came from "
        f"j's training, directly or through others. It is measured in {gain(attributes)}."
    )
    if method(attributes) in FROM_REPORTS:
        models = " and of the models of all rounds" * (method(attributes) in UPON_MODELS)
        scale = (
            "In each round clients reported as by contribution.method=trip. The "
            f"{found} was made of their reports{models} when the run was over; how, the page "
            "Methods of the documentation says. A row need not sum to what the model gained."
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
        seen = PREDICTED if method(attributes) == "predictions" else "the models of all rounds"
        scale = f"The {found} was found when the run was over, from {seen}: "
        scale += (
            "what the final model would be if only some had trained. A row sums to what the model "
            "gained."
            if method(attributes) in REPLAYS
            else "how far the final model gets better, to first order, along what training changed "
            "and others mixed and trained further. A row need not sum to what the model gained."
        )
    elif method(attributes) != TRIP:
        scale = (
            f"In each round a client finds the {found} for everyone whose model it mixes into its "
            "own; what that is, the page Methods of the documentation says."
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
    return [contribution, scale, share]
