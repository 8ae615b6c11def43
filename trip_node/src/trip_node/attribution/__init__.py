"""Contributions from what models say of a shared test set, once a run is over; in NumPy."""
