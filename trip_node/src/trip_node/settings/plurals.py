"""Counts with their noun, in the singular or plural."""


def counted(n: int, thing: str) -> str:
    """`counted(1, "client")` is "1 client", `counted(1200, "client")` "1,200 clients"."""
    return f"{n:,} {thing}{'s' * (n != 1)}"
