"""Numbers of things, as sentences say them."""


def counted(n: int, thing: str) -> str:
    """`counted(1, "client")` is "1 client", `counted(1200, "client")` "1,200 clients"."""
    return f"{n:,} {thing}{'s' * (n != 1)}"
