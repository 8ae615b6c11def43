"""Semivalues of the game that a round is, on NumPy."""
