"""What the check by receivers found in records of predictions, in lines for a terminal."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trip_node.deployment.recorded import RecordedRun
from trip_node.deployment.scores import MOST
from trip_node.settings.plurals import counted


def what_receivers_said(run: RecordedRun) -> Iterator[str]:
    """Lines on claims that do not stand, those that nobody confirms, and disputed exchanges."""
    if run.disputed:
        which = counted(len(run.disputed), "exchange")
        yield f"left out, as one end alone states them: {which}, see disputed.csv\n"
    found = run.checked
    if found is None:
        return
    by: dict[tuple[int, str], list[str]] = defaultdict(list)
    for one in found.objections:
        by[one.round, one.client].append(plain(one.receiver))
    if by:
        names = [f"{_place(*place)} ({_some(who)})" for place, who in by.items()]
        yield (
            "counted as untrained, as more than half of those who received the model testify "
            f"otherwise: {_some(names)}\n"
        )
    if found.unconfirmed:
        names = [_place(*place) for place in found.unconfirmed]
        yield f"taken at their word, as nobody testifies on their models: {_some(names)}\n"
    if found.open_rounds:
        rounds = _some([str(round) for round in found.open_rounds])
        yield (
            f"unchecked, as no record follows: round {rounds}; nodes send a closing record after "
            "their last\n"
        )


def plain(name: str) -> str:
    """A name as a terminal can show it."""
    return name if name.isprintable() else repr(name)


def _place(round: int, client: str) -> str:
    return f"{plain(client)} in round {round}"


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:MOST], *["..."] * (len(names) > MOST)])
