"""Public keys of Ed25519 that stand for a secret: points of the curve, canonical, of large order.

For a point of small order signatures can be made without a secret. Such points, and encodings that
verifiers read in different ways, are named in Chalkias, Garillot, Nikolaenko, "Taming the many
EdDSAs" (2020), section 3. The arithmetic is that of RFC 8032, section 5.1.
"""

from trip_node.settings import require

P = 2**255 - 19
"""The prime of the field over which Ed25519's curve is defined."""

D = -121665 * pow(121666, -1, P) % P
"""The constant d of the curve -x^2 + y^2 = 1 + d x^2 y^2."""

COFACTOR = 8
"""The largest order of a point for which anyone can sign."""


def require_public_key(key: bytes, whose: str) -> None:
    """Refuse 32 bytes to which no secret key belongs.

    Raises:
        InvalidSetting: they are no point of the curve, another spelling of one, or of small order.
    """
    number = int.from_bytes(key, "little")
    y, odd = number & (2**255 - 1), number >> 255
    x = _x(y % P, odd)
    require(
        len(key) == 32 and y < P and x is not None and not (x == 0 and odd),
        f"{whose} is no public key of Ed25519: copy it again from its owner's signer.public.",
    )
    point = (x or 0, y)
    for _ in range(COFACTOR.bit_length() - 1):
        point = _doubled(*point)
    require(
        point != (0, 1),
        f"{whose} is a point of small order, for which anyone can sign: ask its owner for another.",
    )


def _x(y: int, odd: int) -> int | None:
    """The root of (y^2 - 1) / (d y^2 + 1) that is odd or even as asked; None: there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return P - x if x and x & 1 != odd else x


def _doubled(x: int, y: int) -> tuple[int, int]:
    """The sum of a point with itself; the addition of this curve is complete."""
    t = D * x * x * y * y
    return (
        2 * x * y * pow(1 + t, -1, P) % P,
        (y * y + x * x) * pow(1 - t, -1, P) % P,
    )
