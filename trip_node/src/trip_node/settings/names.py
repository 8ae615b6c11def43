"""Names of clients: what may be one, when two are the same, and in which order clients stand."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from trip_node.settings import require

LONGEST_NAME = 200
"""The most characters that a name may have."""

SHOWN = 3
"""How many names a message lists."""


def as_name(where: str, given: Any) -> str:
    """A client's name as a text in Unicode's normal form C.

    Args:
        where: what names the client, as the message's subject.

    Raises:
        InvalidSetting: it is neither a text nor an integer, or a text that is empty, longer than
            `LONGEST_NAME` or not printable.
    """
    number = isinstance(given, Integral) and not isinstance(given, bool)
    require(
        isinstance(given, str) or number,
        f"{where} names a client {brief(given)}, but names are texts or integers.",
    )
    name = unicodedata.normalize("NFC", str(given))
    require(
        0 < len(name) <= LONGEST_NAME and bool(name.strip()) and name.isprintable(),
        f"{where} names a client {brief(given)}, but a name must be printable and have 1 to "
        f"{LONGEST_NAME} characters.",
    )
    return name


def as_names(where: str, given: Iterable[Any]) -> tuple[str, ...]:
    """Names of clients in the order in which clients are numbered: integers by value, then texts.

    Raises:
        InvalidSetting: one is no name, or two are the same in Unicode's normal form C.
    """
    found: dict[str, Any] = {}
    for one in given:
        name = as_name(where, one)
        require(
            name not in found,
            f"{where} names two clients {brief(name)}: names must differ, also when accents are "
            "composed.",
        )
        found[name] = one
    return tuple(sorted(found, key=order_of))


def names_of_nodes(where: str, nodes: Iterable[Any], n: int) -> tuple[str, ...]:
    """The names of n clients, as nodes of a graph that are not all among 0..n-1, in their order.

    Raises:
        InvalidSetting: they are not n, or numbers of clients beside texts.
    """
    nodes, number = list(nodes), {str(i) for i in range(n)}
    given = {str(node) for node in nodes}
    strange = sorted(given - number, key=order_of)
    differ = strange or sorted(number - given, key=order_of)
    lead = f"{where} must have exactly the clients 0..{n - 1} (n_clients={n}), or {n} names, as"
    require(
        len(nodes) == n,
        f"{lead} nodes, not {len(nodes)} of which {several(differ)} differ: set "
        f"n_clients={len(nodes)}, or mend the graph.",
    )
    texts = [name for name in strange if order_of(name)[0]]
    require(
        not texts or not given & number,
        f"{lead} nodes, not numbers of clients beside {several(texts)}.",
    )
    return as_names(where, nodes)


def order_of(name: str) -> tuple[bool, int, str]:
    """The key by which names are sorted."""
    integer = re.fullmatch(r"-?[0-9]{1,18}", name)
    return not integer, int(name) if integer else 0, name


def number_of(where: str, text: str, n: int, names: Sequence[str] | None) -> int:
    """The number of the client that a text stands for.

    Args:
        where: what names the client, as the message's subject.
        names: of the n clients; None: they have numbers alone.

    Raises:
        InvalidSetting: there is no such client.
    """
    if names is None:
        require(
            re.fullmatch(r"[0-9]{1,9}", text) is not None and int(text) < n,
            f"{where} names client {text}, but with n_clients={n} clients are 0..{n - 1}.",
        )
        return int(text)
    name = as_name(where, text)
    require(
        name in names,
        f"{where} names client {brief(name)}, but the clients are called {several(names)}.",
    )
    return names.index(name)


def require_alike(one: str, these: Sequence[str], other: str, those: Sequence[str]) -> None:
    """Refuse two parts of a federation that name different clients.

    Args:
        one, other: what names the clients, for the message.

    Raises:
        InvalidSetting: a client is named by one of the two alone.
    """
    for has, own, lacks, others in ((one, these, other, those), (other, those, one, these)):
        alone = sorted(set(own) - set(others), key=order_of)
        require(
            not alone,
            f"{has} names {several(alone)}, which {lacks} does not name: name the same clients in "
            "both.",
        )


def brief(given: Any) -> str:
    """A name as messages show it: quoted, and cut where it is long."""
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def several(names: Sequence[str]) -> str:
    """The first few of names, for messages."""
    return ", ".join(map(brief, names[:SHOWN])) + ", ..." * (len(names) > SHOWN)
