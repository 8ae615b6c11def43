"""The coordinator of the paper on NumPy and SciPy: Eq. 3 and the defence C2."""
