"""FLOP, bytes and launches of a program, counted in the text of its HLO.

The text is of a program as lowered for a platform that need not be here, or as compiled. XLA's own
count takes the body of a loop once; here it is taken as often as the loop runs it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

ARRAY = re.compile(r"\b(pred|(?:bf|[suf])(\d+)\w*)\[([\d,]*)\]")
CALLED = re.compile(r"\b(?:calls|to_apply|body)=%?([\w.-]+)")
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "after-all"}
"""Operations that launch nothing of their own."""

SLICES = "dynamic-slice", "gather", "slice"
"""Operations that read as much of their first operand as they give."""

UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""Operations that overwrite a part of their first operand, and which operand is the part."""


@dataclass(frozen=True)
class Counts:
    """What one call of a program does.

    Attributes:
        flop: two for each product in matrix products and convolutions, padding included.
        products: matrix products and convolutions that are called.
        launches: kernels; of a program that is only lowered, operations.
        bytes: that kernels read and write, if no kernel finds in a cache what another left there.
    """

    flop: float = 0
    products: float = 0
    launches: float = 0
    bytes: float = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.flop + other.flop,
            self.products + other.products,
            self.launches + other.launches,
            self.bytes + other.bytes,
        )

    def __mul__(self, times: float) -> "Counts":
        return Counts(
            self.flop * times, self.products * times, self.launches * times, self.bytes * times
        )


@dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str
    operation: str
    operands: tuple[str, ...]
    attributes: str
    root: bool

    @cached_property
    def dimensions(self) -> list[int]:
        """The sizes of an array's axes, from its type in the text of a program."""
        return _dimensions(self.shape)

    @cached_property
    def size(self) -> float:
        """Bytes of the array, or of all arrays of a tuple."""
        return sum(
            math.prod(map(int, filter(None, shape.split(",")))) * int(bits or 8) / 8
            for _, bits, shape in ARRAY.findall(self.shape)
        )

    def named(self, attribute: str) -> str:
        """What stands behind `attribute=`, without braces."""
        found = re.search(rf"\b{attribute}={{?([^\s,}}]*(?:,\d+)*)", self.attributes)
        return found[1].lstrip("%") if found else ""

    def numbers(self, attribute: str) -> list[int]:
        """The numbers in an attribute of the instruction that is a list of axes."""
        return [int(one) for one in self.named(attribute).split(",") if one]


@dataclass(frozen=True)
class _Computation:
    instructions: dict[str, _Instruction] = field(default_factory=dict)

    @cached_property
    def root(self) -> _Instruction:
        return next(one for one in self.instructions.values() if one.root)

    @cached_property
    def users(self) -> dict[str, list[_Instruction]]:
        """Who reads what an instruction gives."""
        found: dict[str, list[_Instruction]] = {name: [] for name in self.instructions}
        for one in self.instructions.values():
            for operand in set(one.operands) & found.keys():
                found[operand].append(one)
        return found

    def read(self, name: str) -> float:
        """Bytes of a parameter of a fusion that its kernel reads."""
        whole, parts = self.instructions[name].size, 0.0
        for user in self.users[name]:
            first = user.operands[0] == name
            if user.operation in SLICES and first:
                parts += user.size
            elif user.operation == "bitcast":
                parts += self.read(user.name)
            elif not (user.operation in UPDATES and first):
                return whole
        return min(parts, whole)

    def written(self, one: _Instruction) -> float:
        """Bytes that an instruction writes, or a fusion of which it is the root."""
        if one.operation == "tuple":
            return sum(self.written(self.instructions[name]) for name in one.operands)
        if one.operation == "bitcast":
            return self.written(self.instructions[one.operands[0]])
        if one.operation in UPDATES:
            return self.instructions[one.operands[UPDATES[one.operation]]].size
        return one.size


class _Program:
    def __init__(self, text: str, unknown: int):
        self._unknown, self._counted = unknown, dict[str, Counts]()
        self._computations: dict[str, _Computation] = {}
        for line in text.splitlines():
            if header := re.match(r"(ENTRY )?%?([\w.-]+) (?:\(.*)?\{$", line):
                computation = self._computations[header[2]] = _Computation()
                if header[1]:
                    self.main = header[2]
            elif line.startswith("  ") and (one := _parsed(line)):
                computation.instructions[one.name] = one

    def counts(self, name: str) -> Counts:
        """The counts of one call of a computation."""
        if name not in self._counted:
            computation = self._computations[name]
            each = (self._of(one, computation) for one in computation.instructions.values())
            self._counted[name] = sum(each, Counts())
        return self._counted[name]

    def _of(self, one: _Instruction, computation: _Computation) -> Counts:
        if one.operation in FREE or one.operation.endswith("-done"):
            return Counts()
        called = [self._computations[name] for name in CALLED.findall(one.attributes)]
        inner = [self.counts(name) for name in CALLED.findall(one.attributes)]
        if one.operation == "while":
            return inner[0] * self._trips(one)
        if one.operation == "call":
            return inner[0]
        if one.operation == "conditional":
            branches = re.findall(r"[\w.-]+", one.named("branch_computations").replace("%", ""))
            return max(map(self.counts, branches), key=lambda counts: counts.flop)
        operands = [
            computation.instructions[name]
            for name in one.operands
            if name in computation.instructions
        ]
        if one.operation == "fusion":
            parameters = _parameters(called[0])
            size = sum(map(called[0].read, parameters)) + called[0].written(called[0].root)
            return Counts(inner[0].flop, inner[0].products, 1, size)
        size = computation.written(one)
        if one.operation in SLICES or one.operation in UPDATES:
            size *= 2
        else:
            size += sum(operand.size for operand in operands)
        flop = _flop(one, operands)
        return Counts(flop, float(flop > 0), 1, size)

    def _trips(self, loop: _Instruction) -> int:
        """How often a loop runs its body: as XLA found, or as its condition says."""
        if found := re.search(r'"known_trip_count":{"n":"(\d+)"}', loop.attributes):
            return int(found[1])
        condition = self._computations[loop.named("condition")]
        root = condition.root
        limit = condition.instructions.get(root.operands[-1])
        if root.operation == "compare" and limit and limit.operation == "constant":
            return int(limit.operands[0])
        return self._unknown


def counted(text: str, unknown: int = 1) -> Counts:
    """The counts of one call of a program.

    Args:
        text: its HLO, as `lowered.as_text("hlo")` or `compiled.as_text()` gives it.
        unknown: how often loops run whose number of passes depends on data.
    """
    program = _Program(text, unknown)
    return program.counts(program.main)


def _parsed(line: str) -> _Instruction | None:
    found = re.match(r"\s+(ROOT )?%?([\w.-]+) = ", line)
    if not found:
        return None
    rest = line[found.end() :]
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    operation, _, rest = rest.partition("(")
    end = _closing("(" + rest) - 2
    operands = tuple(re.sub(r"/\*.*?\*/|%", "", rest[:end]).split(", "))
    return _Instruction(found[2], shape, operation, operands, rest[end + 1 :], bool(found[1]))


def _closing(text: str) -> int:
    """The place of the parenthesis that closes the one with which the text begins."""
    depth = 0
    for k, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return k + 1
    raise ValueError(f"A parenthesis is not closed: {text[:80]}")


def _parameters(computation: _Computation) -> Iterator[str]:
    return (k for k, one in computation.instructions.items() if one.operation == "parameter")


def _dimensions(shape: str) -> list[int]:
    found = ARRAY.match(shape)
    return [int(one) for one in found[3].split(",") if one] if found else []


def _flop(one: _Instruction, operands: list[_Instruction]) -> float:
    """The operations of a matrix product or a convolution; 0 for other instructions."""
    given = math.prod(one.dimensions)
    if one.operation == "dot":
        left = operands[0].dimensions
        return 2 * given * math.prod(left[k] for k in one.numbers("lhs_contracting_dims"))
    if one.operation == "convolution":
        _, kernel, _ = re.split("_|->", one.named("dim_labels"))
        sizes = operands[1].dimensions
        return 2 * given * math.prod(sizes) / sizes[kernel.index("o")]
    return 0
