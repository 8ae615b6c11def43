"""Graphs as lists in text: an edge a line, or a node with its neighbours a line."""

import ast
import csv
import re
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx

Edge: TypeAlias = tuple[str, str, float | None]
"""An edge of a list: its source, its target and its weight, if any."""

EDGES, ADJACENCY = "edges", "adjacency"

HEADERS = (
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("sender", "receiver"),
    ("node1", "node2"),
)
"""Names of the first two columns of an edge list that has a header."""

DIRECTIONS = re.compile(r"#+\s*(un)?directed(\s+graph\b.*)?", re.IGNORECASE)
"""A comment that says whether a list is directed, as SNAP's data sets have it, too."""

LINE = re.compile(r"\r\n|\r|\n")
"""What ends a line; other signs that Unicode breaks lines at may stand in names."""

COMMENT = re.compile(r"(?:^|\s)#.*")
"""A comment of a list with blanks between columns; else a comment has its line alone."""

DATA = re.compile(r"(.*?)\s*(\{.*\})")
DECIMAL_COMMA = re.compile(r"\S+\s+\S+\s+-?\d+,\d+")

LONGEST_DATA = 1000
"""Characters of the attributes of an edge, as `networkx.write_edgelist` writes them."""

AS_GRAPHML = "save it as GraphML (networkx.write_graphml)"
FOREIGN = (
    (rb"\xff\xfe|\xfe\xff|.?\0", "in UTF-16", "save it as UTF-8"),
    (rb"\x1f\x8b|PK\x03\x04|BZh|\xfd7zXZ", "compressed", "unpack it"),
    (rb"\x93NUMPY", "an array of NumPy", "give it to tj.topology.build in Python"),
    (rb"\s*<", "in XML that is no GraphML", AS_GRAPHML),
    (rb"\s*((#|Creator\b|Version\b)[^\n]*\n\s*)*graph\s*\[", "in GML", AS_GRAPHML),
    (rb"\s*(%[^\n]*\n\s*)*\*(Vertices|Network)", "of Pajek", AS_GRAPHML),
    (rb"\s*(strict\s+)?(di)?graph\b[^\n\[]*\{", "in DOT", AS_GRAPHML),
    (rb"%%MatrixMarket", "of Matrix Market", AS_GRAPHML),
    (rb"\s*[\[{]", "in JSON", AS_GRAPHML),
    (rb">>(graph6|sparse6|digraph6)<<", "in graph6", AS_GRAPHML),
)
"""How files of other forms begin, what they are, and what mends them."""


@dataclass(frozen=True)
class Row:
    """A line of a list that is neither blank nor a comment."""

    number: int  # of the line, from 1
    words: list[str]
    data: dict[str, Any] | None = None  # attributes of an edge, as a dictionary of Python


@dataclass(frozen=True)
class EdgeTable:
    """The lines of a list, cut into words."""

    rows: list[Row]
    directed: bool | None  # what the file says itself; None: nothing
    has_header: bool

    def looks_like_metis(self) -> bool:
        """Whether line 1 may count nodes and edges, and the others list them."""
        head, *rest = self.rows
        if not rest or len(head.words) not in (2, 3):
            return False
        if not all(word.isascii() and word.isdigit() for row in self.rows for word in row.words):
            return False
        n, m = map(int, head.words[:2])
        numbers = [int(word) for row in rest for word in row.words]
        a_pair = 2 if len(head.words) == 2 else 4  # with weights
        return len(numbers) == a_pair * m and len(rest) <= max(n, m) and max(numbers) <= n

    def looks_like_matrix(self, n: int) -> bool:
        """Whether the lines may be a matrix of n rows: of 0 and 1, or symmetric."""
        rows = [row.words for row in self.rows]
        if n < 3 or len(rows) != n or any(len(row) != n for row in rows):
            return False
        if not all(_is_number(word) for row in rows for word in row):
            return False
        numbers = [[float(word) for word in row] for row in rows]
        binary = all(number in (0, 1) for row in numbers for number in row)
        return binary or numbers == [list(column) for column in zip(*numbers, strict=True)]


@dataclass(frozen=True)
class Reading:
    """A list read in one of its forms."""

    form: str
    nodes: dict[str, None]  # in the order of the lines
    edges: list[Edge]

    def differs(self, other: "Reading", directed: bool) -> bool:
        """Whether two readings of a list give different graphs."""
        return self._meaning(directed) != other._meaning(directed)

    def _meaning(self, directed: bool) -> set[Any]:
        return {
            (a, b, weight) if directed else (*sorted((a, b)), weight) for a, b, weight in self.edges
        }


def table_of(path: Path) -> EdgeTable:
    """The lines of a text file, cut into words.

    Raises:
        ValueError: it is no text in UTF-8, of another form, or has a header of other columns.
    """
    raw = path.read_bytes()
    for begins, what, mend in FOREIGN:
        if re.match(begins, raw[:4096], re.DOTALL | re.IGNORECASE):
            raise ValueError(f"it is {what}: {mend}")
    lines = LINE.split(raw.decode("utf-8-sig"))  # whose byte order mark is no name
    whole = [(k, line.strip()) for k, line in enumerate(lines, 1)]
    rows = [(k, text) for k, line in whole if (text := COMMENT.sub("", line).strip())]
    if not rows:
        raise ValueError("it holds no edge")
    mark = _between_columns([line for _, line in rows])
    if mark:
        rows = [(k, line) for k, line in whole if line and not line.startswith("#")]
    cut = [_row(k, line, mark) for k, line in rows]
    columns = tuple(word.lower() for word in cut[0].words)
    has_header = columns[:2] in HEADERS
    if has_header and columns[2:] not in ((), ("weight",)):
        raise ValueError(f"line {cut[0].number}: columns must be source, target and perhaps weight")
    if mark and not has_header:
        raise ValueError(
            f"line {cut[0].number} has {mark!r} between columns: write blanks, or a first line "
            f"source{mark}target"
        )
    return EdgeTable(cut[has_header:], _directions(lines), has_header)


def _directions(lines: list[str]) -> bool | None:
    """What the comments before the first edge say."""
    for line in lines:
        if found := DIRECTIONS.fullmatch(line.strip()):
            return found[1] is None
        if line.strip() and not line.startswith("#"):
            break
    return None


def _between_columns(lines: list[str]) -> str | None:
    """The sign that stands between columns; None: blanks."""
    texts = [found[1] if (found := DATA.fullmatch(line)) else line for line in lines]
    if all(map(DECIMAL_COMMA.fullmatch, texts)):
        raise ValueError("weights have a decimal comma: write 0.5 for 0,5")
    mark = next((mark for mark in ";," if any(mark in text for text in texts)), None)
    tabs = any(
        len(text.split("\t")) > 1 and len(text.split()) > len(text.split("\t")) for text in texts
    )
    header = "\t" in texts[0] and tuple(texts[0].lower().split()[:2]) in HEADERS
    return "\t" if mark is None and (tabs or header) else mark


def _row(number: int, line: str, mark: str | None) -> Row:
    found = DATA.fullmatch(line)
    text = found[1] if found else line
    words = text.split() if mark is None else _fields(number, text, mark)
    return Row(number, words, _attributes(number, found[2]) if found else None)


def _fields(number: int, text: str, mark: str) -> list[str]:
    try:
        (fields,) = csv.reader([text], delimiter=mark, skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise ValueError(f"line {number} has a quote that is not closed") from error
    fields = [field.strip() for field in fields]
    if not all(fields):
        raise ValueError(f"line {number} has an empty column")
    return fields


def _attributes(number: int, text: str) -> dict[str, Any]:
    try:
        found = ast.literal_eval(text if len(text) <= LONGEST_DATA else "")
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"line {number} has attributes that are no dictionary, such as {{}}")
    return found


def as_edges(table: EdgeTable) -> Reading:
    """Lines `a b`, `a b weight` or `a b {...}`.

    Raises:
        ValueError: a line is none of these.
    """
    edges = []
    for row in table.rows:
        if row.data is not None and len(row.words) == 1:
            raise ValueError(f"it is a multi-line adjacency list: {AS_GRAPHML}")
        if len(row.words) not in ((2, 3) if row.data is None else (2,)):
            raise ValueError(f"line {row.number} is not a pair of nodes 'a b', nor 'a b weight'")
        a, b, *weights = row.words
        given = weights[0] if weights else (row.data or {}).get("weight")
        if given is not None and (isinstance(given, bool) or not _is_number(given)):
            comma = isinstance(given, str) and _is_number(given.replace(",", ".", 1))
            mend = ": write 0.5 for 0,5" if comma else ""
            raise ValueError(f"line {row.number} has the weight {str(given)!r:.60}{mend}")
        edges.append((a, b, None if given is None else float(given)))
    return Reading(EDGES, dict.fromkeys(end for a, b, _ in edges for end in (a, b)), edges)


def as_adjacency(table: EdgeTable, *, strictly: bool = False) -> Reading:
    """Lines `a b c ...`: a node, and those that it has edges to.

    Args:
        strictly: whether a node must stand first in one line alone, and no line may name one twice,
            as in the lists that programs write.

    Raises:
        ValueError: lines have attributes, or are not strict.
    """
    nodes: dict[str, None] = {}
    edges: list[Edge] = []
    heads = set()
    for row in table.rows:
        if row.data is not None:
            raise ValueError(f"line {row.number} has attributes, which adjacency lists have not")
        head, *others = row.words
        if strictly and (head in heads or len(set(row.words)) < len(row.words)):
            raise ValueError(f"line {row.number} names a node again")
        heads.add(head)
        nodes |= dict.fromkeys(row.words)
        edges += [(head, other, None) for other in others]
    return Reading(ADJACENCY, nodes, edges)


def graph_of(reading: Reading, directed: bool) -> nx.Graph:
    """The graph that a list describes; its nodes are texts.

    Raises:
        ValueError: an edge has two weights.
    """
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(reading.nodes)
    given: dict[tuple[str, str], float | None] = {}
    for a, b, weight in reading.edges:
        if not _same(given.setdefault((a, b), weight), weight):
            raise ValueError(f"the edge {a!r} {b!r} has two weights: keep one")
        if not directed and not _same(given.get((b, a), weight), weight):
            raise ValueError(
                f"the two directions of {a!r} and {b!r} have different weights, so that it can "
                "only be directed: set topology.directed=true, or write '# directed' as its first "
                "line"
            )
        graph.add_edge(a, b, **({} if weight is None else {"weight": weight}))
    return graph


def _same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and isnan(one) and isnan(other))


def _is_number(given: Any) -> bool:
    try:
        float(given)
    except (ValueError, TypeError, OverflowError):
        return False
    return "_" not in str(given)
