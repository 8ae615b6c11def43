"""Whether a device computes what a CPU did, whose results are kept beside this file.

python -m experiments.benchmarks.roofline_check     # keeps those of this device instead
"""

from pathlib import Path

import jax
import numpy as np
import pandas

from experiments.benchmarks.roofline_cases import Case, Sizes, program_of
from trip_jax.settings.errors import InvalidSetting

KEPT = Path(__file__).with_name("roofline_check.csv")
SIZES = Sizes(samples=8 * 64, tested=20)
RTOL = 1e-3
"""By which devices may differ in float32, relative to the largest number."""


def results() -> pandas.DataFrame:
    """Losses of eight clients in training, how far their models move, and losses of mixtures."""
    training = program_of(Case("training", 8, "shifts", "float32", 8), SIZES)
    trained, losses = training.function(*training.given)
    moved = np.linalg.norm(np.asarray(trained - training.given[1]), axis=1)
    evaluation = program_of(Case("evaluation", 8, "shifts", "float32", 32), SIZES)
    table = np.asarray(evaluation.function(*evaluation.given))
    return pandas.DataFrame({"loss": losses, "moved": moved, "mixture": table[31::32, 1]})


def require_kept_results(kept: Path = KEPT) -> str:
    """Refuse a device that computes something else.

    Returns:
        by how much it differs, in words.

    Raises:
        InvalidSetting: by more than rounding.
    """
    found, expected = results(), pandas.read_csv(kept)
    far = ((found - expected).abs() / expected.abs().max()).to_numpy().max()
    device = jax.devices()[0].device_kind
    if not far <= RTOL:
        raise InvalidSetting(
            f"{device} computes results that differ from a CPU's by {far:.1e}, more than {RTOL}: "
            "mend its set-up before its speed is measured."
        )
    return f"Results on {device} are a CPU's within {far:.1e}."


if __name__ == "__main__":
    results().to_csv(KEPT, index=False)
