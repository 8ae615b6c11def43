"""The examples of heads of one's own and of robust rules, in few rounds."""

import numpy as np
import pytest

from examples import personalised, robust
from tests.conftest import rarely

OWN = "own heads"


@pytest.mark.parametrize("names", [(OWN,), rarely(tuple(personalised.SETTINGS))])
def test_heads_of_ones_own_fit_scales_of_ones_own(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The clinic whose grades are random contributes least; a common head fits nobody."""
    results = personalised.main(rounds=3, names=names)
    clinics = list(personalised.PATIENTS)
    assert np.argmin(results[OWN].scores) == clinics.index(personalised.RANDOM)
    same = [clinic != personalised.RANDOM for clinic in clinics]
    accuracies = [one.accuracy[-1, same].mean() for one in results.values()]
    assert accuracies[-1] > 0.5 and accuracies[0] < (0.5 if len(names) > 1 else 1)
    printed = capsys.readouterr().out
    assert all(clinic in printed for clinic in clinics)


def test_the_median_withstands_attackers_and_scores_them_low(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = robust.main(rounds=2, rules=("median",))["median"]
    lying = np.isin(np.arange(8), robust.ATTACKERS)
    assert result.scores[lying].max() < result.scores[~lying].min()
    assert "median" in capsys.readouterr().out
