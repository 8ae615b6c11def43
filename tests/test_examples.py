"""The examples of heads of one's own and of robust rules, in few rounds."""

import numpy as np
import pytest

from examples import personalised, robust


def test_heads_of_ones_own_fit_scales_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    results = personalised.main(rounds=3)
    clinics = list(personalised.PATIENTS)
    mixed, own = (results[name].accuracy[-1] for name in personalised.SETTINGS)
    same = [clinic != personalised.RANDOM for clinic in clinics]
    assert own[same].mean() > mixed[same].mean() + 0.1
    scores = results["own heads"].scores
    assert np.argmin(scores) == clinics.index(personalised.RANDOM)
    printed = capsys.readouterr().out
    assert all(clinic in printed for clinic in clinics)


def test_the_median_withstands_attackers_and_scores_them_low(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = robust.main(rounds=2, rules=("median",))["median"]
    lying = np.isin(np.arange(8), robust.ATTACKERS)
    assert result.scores[lying].max() < result.scores[~lying].min()
    assert "median" in capsys.readouterr().out
