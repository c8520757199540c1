"""Which code to use: the ones that meet a request, with their guarantees and costs, ranked.

Number theory only: no code is built and no field; knows nothing of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import sympy

from ..arguments import as_integer, as_integers, check_choice
from ..errors import ArgumentError, ArgumentTypeError
from .base import FORMAT, INT64_LIMIT, LARGEST_FACTOR, LabelMapping
from .mixed import smallest_root

__all__ = ["Choice", "design"]

FAMILIES = ("mixed", "simplex", "one-hot")
# Beyond this many sites a code is no practical one, and a search for primes takes seconds.
MOST_SITES = 256
# How far the number of sites is raised, where it is free, to use up `max_parameters`.
SEARCHED_SITES = 32
# Where neither sites nor a distance are asked: one wrong site is corrected.
USUAL_DISTANCE = 3
# Knowledge a trained network holds, per parameter. Allen-Zhu and Li (2024), "Physics of
# Language Models: Part 3.3, Knowledge Capacity Scaling Laws".
BITS_PER_PARAMETER = 2
FLOAT32_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A code that meets a request: what it guarantees and what its head costs.

    Attributes
    ----------
    n_classes : int
        N.
    family : {"mixed", "simplex", "one-hot"}
    alphabet_sizes : tuple of int
        q_i, the number of symbols of each site.
    n_sites, dimension, min_distance : int
        n; k, any k sites determine the class; d = n - k + 1, at so many sites any two
        classes differ.
    errors_corrected : int
        Wrong sites that hard reading corrects always: (d - 1) // 2.
    sites_that_may_be_lost : int
        Learners whose loss leaves every class with a codeword of its own: d - 1.
    capacity, spare : int
        Classes that the same alphabets can hold, and how many of them are free.
    mutual_information : float
        Of the two sites that know most of each other, in bits to 12 decimals, the class
        uniform; 0 for a single site.
    head_parameters, head_bytes : int
        Of a joint `LabelMappingHead` with its hidden layers, in float32.
    one_hot_parameters, one_hot_bytes : int
        Of one linear layer from the features to N logits, in float32.
    ratio : float
        How many times smaller the head is than one-hot.
    bits_to_hold : float
        N log2 N: what the network has to memorise, since which classes share a symbol
        has nothing to do with how they look.
    warnings : tuple of str
    """

    n_classes: int
    family: str
    alphabet_sizes: tuple[int, ...]
    n_sites: int
    dimension: int
    min_distance: int
    errors_corrected: int
    sites_that_may_be_lost: int
    capacity: int
    spare: int
    mutual_information: float
    head_parameters: int
    head_bytes: int
    one_hot_parameters: int
    one_hot_bytes: int
    ratio: float
    bits_to_hold: float
    warnings: tuple[str, ...]

    def recipe(self) -> dict[str, Any]:
        """The mapping's recipe, JSON values; nothing is built, galois is not needed."""
        sizes, kind = list(self.alphabet_sizes), "mixed"
        rest: dict[str, Any] = {"alphabet_sizes": sizes, "dimension": self.dimension}
        if self.family == "simplex":
            kind = "simplex"
            rest = {
                "n_sites": self.n_sites,
                "field_order": sizes[0],
                "dimension": self.dimension,
                "points": [point % sizes[0] for point in range(1, self.n_sites + 1)],
            }
        return {"format": FORMAT, "kind": kind, "n_classes": self.n_classes, **rest}

    def mapping(self) -> LabelMapping:
        """The code itself.

        Raises
        ------
        MissingExtraError
            Its field has prime-power order and galois is not installed.
        """
        return LabelMapping.from_config(self.recipe())

    def to_dict(self) -> dict[str, Any]:
        """Every attribute and the recipe, as JSON values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()},
            "recipe": self.recipe(),
        }


def design(
    n_classes: int,
    *,
    sites: int | None = None,
    distance: int | None = None,
    lost_sites: int | None = None,
    max_alphabet: int | None = None,
    max_parameters: int | None = None,
    in_features: int = 512,
    hidden: int | Sequence[int] = 0,
    family: str | Sequence[str] | None = None,
    trunk_parameters: int | None = None,
    top: int = 8,
) -> list[Choice]:
    """The codes for N classes that meet a request, the best first.

    Of each family and dimension the one with the smallest alphabets (simplex: of primes and
    of prime powers). The order: codes
    smaller than one-hot come first; then, with `max_parameters`, the largest distance,
    without it dimension 2 (the paper's), then 3, 4, ... and 1; then the fewest parameters.

    Parameters
    ----------
    n_classes : int
        N, at least 2 and below 2^63.
    sites : int, optional
        n exactly, at most 256. Default: as many as give the distance (3 where none is
        asked either); with `max_parameters`, as many as it pays for, up to 32.
    distance : int, optional
        Any two classes differ at so many sites at least; at most 256.
    lost_sites : int, optional
        So many learners may be lost: a distance of one more at least.
    max_alphabet : int, optional
        The most symbols a site may have.
    max_parameters : int, optional
        The most parameters the head may have, hidden layers and norms counted.
    in_features : int, default 512
        Width of the trunk's features.
    hidden : int or sequence of int, default 0
        Hidden layers of the head, as in `LabelMappingHead`.
    family : str or sequence of str, optional
        Of "mixed" (residues modulo primes in a row), "simplex" (Reed-Solomon over the
        smallest field, primes and prime powers) and, for reference, "one-hot". Default:
        the first two.
    trunk_parameters : int, optional
        Parameters of the trunk. Given, a warning says where 2 bits for each of them and
        of the hidden layers are fewer than what is to be memorised (Allen-Zhu and Li
        2024, "Physics of Language Models: Part 3.3, Knowledge Capacity Scaling Laws").
    top : int, default 8
        The most choices returned.

    Returns
    -------
    list of Choice, at least one

    Raises
    ------
    ArgumentError
        Nothing meets the request; the message has the constraint that binds and the
        nearest value that would do.

    Examples
    --------
    >>> best, *rest = design(20_901, sites=4)
    >>> best.family, best.alphabet_sizes, best.min_distance, best.capacity
    ('simplex', (149, 149, 149, 149), 3, 22201)
    >>> best.head_parameters, round(best.ratio, 1)
    (305748, 35.1)
    >>> best.mapping()
    SimplexMapping(n_classes=20901, n_sites=4, field_order=149, dimension=2, points=[1, 2, 3, 4])
    >>> [choice.dimension for choice in rest]
    [2, 3, 3, 4, 4, 1, 1]
    >>> design(10**8, sites=4, distance=3, max_alphabet=100)
    Traceback (most recent call last):
        ...
    labelmapping.errors.ArgumentError: max_alphabet 100 with 4 sites and distance 3 holds at most
    9,409 classes (97^2, simplex); 100,000,000 need max_alphabet at least 10,007, or 7 sites
    """
    request = _check(n_classes, sites, distance, lost_sites, max_alphabet, max_parameters, family)
    size = _HeadSize(as_integer("in_features", in_features, 1), _hidden_widths(hidden))
    top = as_integer("top", top, 1)
    if trunk_parameters is not None:
        trunk_parameters = as_integer("trunk_parameters", trunk_parameters, 0)
    codes = _search(request, size)
    if not codes:
        raise ArgumentError(_what_binds(request, size))

    def rank(code: _Code) -> tuple[int, ...]:
        parameters = size.of(code)
        dimension = code.dimension if code.dimension > 1 else 64  # above every dimension
        first = dimension if max_parameters is None else -code.distance
        order = FAMILIES.index(code.family)
        return int(parameters >= size.one_hot(n_classes)), first, parameters, order

    return [
        _choice(n_classes, code, size, trunk_parameters) for code in sorted(codes, key=rank)[:top]
    ]


@dataclass(frozen=True)
class _Request:
    n_classes: int
    sites: int | None
    distance: int | None
    lost_sites: int | None  # where it is what asks for the distance
    max_alphabet: int | None
    max_parameters: int | None
    families: tuple[str, ...]


@dataclass(frozen=True)
class _Code:
    family: str
    sizes: tuple[int, ...]
    dimension: int

    @property
    def n_sites(self) -> int:
        return len(self.sizes)

    @property
    def distance(self) -> int:
        return self.n_sites - self.dimension + 1

    @property
    def capacity(self) -> int:
        return math.prod(self.sizes[: self.dimension])

    @property
    def is_in_int64(self) -> bool:
        """Whether the code's class takes it."""
        largest = LARGEST_FACTOR if self.dimension > 1 or self.family == "simplex" else INT64_LIMIT
        return math.prod(self.sizes[-self.dimension :]) < INT64_LIMIT and self.sizes[-1] <= largest


@dataclass(frozen=True)
class _HeadSize:
    """Parameters of `LabelMappingHead`: hidden layers have no bias, their norms two vectors."""

    in_features: int
    hidden: tuple[int, ...]

    @property
    def of_hidden(self) -> int:
        widths = (self.in_features, *self.hidden)
        return sum((a + 2) * b for a, b in zip(widths, self.hidden, strict=False))

    def of(self, code: _Code) -> int:
        width = (self.in_features, *self.hidden)[-1]
        return self.of_hidden + (width + 1) * sum(code.sizes)

    def one_hot(self, n_classes: int) -> int:
        return (self.in_features + 1) * n_classes


def _check(
    n_classes: int,
    sites: int | None,
    distance: int | None,
    lost_sites: int | None,
    max_alphabet: int | None,
    max_parameters: int | None,
    family: str | Sequence[str] | None,
) -> _Request:
    n_classes = as_integer("n_classes", n_classes, 2)
    if n_classes >= INT64_LIMIT:
        raise ArgumentError(f"n_classes must be below 2^63, got {n_classes}")
    if sites is not None:
        sites = as_integer("sites", sites, 1)
        if sites > MOST_SITES:
            raise ArgumentError(f"sites must be at most {MOST_SITES}, got {sites}")
    if max_alphabet is not None:
        max_alphabet = as_integer("max_alphabet", max_alphabet, 2)
    if max_parameters is not None:
        max_parameters = as_integer("max_parameters", max_parameters, 1)
    least, lost = _distance(sites, distance, lost_sites)
    families = _families(family)
    return _Request(n_classes, sites, least, lost, max_alphabet, max_parameters, families)


def _distance(
    sites: int | None, distance: int | None, lost_sites: int | None
) -> tuple[int | None, int | None]:
    """The distance asked, and `lost_sites` where that is what asks for it."""
    least = None if distance is None else as_integer("distance", distance, 1)
    lost = None
    if lost_sites is not None:
        lost_sites = as_integer("lost_sites", lost_sites, 0)
        if least is None or lost_sites >= least:
            least, lost = lost_sites + 1, lost_sites
    if least is None:
        return None, None
    limit, why = (MOST_SITES, "") if sites is None else (sites, f" of {sites} sites")
    if least > limit:
        raise ArgumentError(
            f"distance{why} must be at most {limit}, got {least}"
            if lost is None
            else f"lost_sites{why} must be at most {limit - 1}, got {lost}"
        )
    return least, lost


def _families(family: str | Sequence[str] | None) -> tuple[str, ...]:
    if family is None:
        return FAMILIES[:2]
    if not isinstance(family, Sequence):
        raise ArgumentTypeError(f"family must be a name or a sequence of names, got {family!r}")
    names = (family,) if isinstance(family, str) else tuple(family)
    if not names:
        raise ArgumentError(f"family must name at least one of {', '.join(FAMILIES)}")
    return tuple(check_choice("family", name, FAMILIES) for name in names)


def _hidden_widths(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """As `labelmapping.nn.head` reads them, which may not be imported here."""
    if isinstance(hidden, Sequence):
        return as_integers("hidden", hidden, 1) if len(hidden) else ()
    width = as_integer("hidden", hidden, 0)
    return (width,) if width else ()


# --- the search


def _search(request: _Request, size: _HeadSize) -> list[_Code]:
    """Every code that meets the request, at most one of a family, field kind and dimension."""
    if request.sites is None and request.distance is None and request.max_parameters is None:
        for distance in range(USUAL_DISTANCE, 0, -1):
            codes = _search(replace(request, distance=distance), size)
            if codes or distance == 1:
                if "one-hot" in request.families and distance > 1:
                    codes += _search(replace(request, distance=1, families=("one-hot",)), size)
                return codes
    found = []
    for make in _makers(request):
        for dimension in range(1, request.n_classes.bit_length() + 1):
            longest = None
            for code in _lengths(request, dimension, make):
                if not _fits(request, size, code):
                    break
                longest = code
            if longest is not None:
                found.append(longest)
    return found


_Maker = Callable[[int, int, int], _Code | None]


def _makers(request: _Request) -> list[_Maker]:
    """What makes codes of (N, dimension, sites), one for each family and kind of field."""
    makers: list[_Maker] = []
    if "mixed" in request.families:
        makers.append(_mixed)
    if "simplex" in request.families:
        makers += [_prime_simplex, _power_simplex]
    if "one-hot" in request.families:
        makers.append(_one_hot)
    return makers


def _lengths(request: _Request, dimension: int, make: _Maker) -> Iterator[_Code]:
    """Codes of one dimension with every number of sites that may be of use, fewest first."""
    distance = request.distance or 1
    if request.sites is not None:
        lengths = range(request.sites, request.sites + 1)
    else:
        shortest = dimension + distance - 1
        longest = shortest if request.max_parameters is None else SEARCHED_SITES
        lengths = range(shortest, max(shortest, longest) + 1)
    for n_sites in lengths:
        if n_sites - dimension + 1 < distance:
            return
        code = make(request.n_classes, dimension, n_sites)
        if code is None or not code.is_in_int64:
            return
        if math.prod(code.sizes[: dimension - 1]) >= request.n_classes and dimension > 1:
            return  # the same alphabets do with a lower dimension, and give a larger distance
        yield code


def _fits(request: _Request, size: _HeadSize, code: _Code) -> bool:
    if request.max_alphabet is not None and code.sizes[-1] > request.max_alphabet:
        return False
    return request.max_parameters is None or size.of(code) <= request.max_parameters


def _mixed(n_classes: int, dimension: int, n_sites: int) -> _Code | None:
    primes = list(_smallest_window(n_classes, dimension))
    while len(primes) < n_sites:
        primes.append(_next_prime(primes[-1]))
    return _Code("mixed", tuple(primes), dimension)


def _prime_simplex(n_classes: int, dimension: int, n_sites: int) -> _Code | None:
    least = max(smallest_root(n_classes, dimension), n_sites)
    return _Code("simplex", (_next_prime(least - 1),) * n_sites, dimension)


def _power_simplex(n_classes: int, dimension: int, n_sites: int) -> _Code | None:
    """Over the smallest field of prime-power order, where it is smaller than the prime's."""
    least = max(smallest_root(n_classes, dimension), n_sites)
    prime, power = _next_prime(least - 1), _next_power(least)
    return _Code("simplex", (power,) * n_sites, dimension) if power < prime else None


def _one_hot(n_classes: int, dimension: int, n_sites: int) -> _Code | None:
    return _Code("one-hot", (n_classes,), 1) if dimension == n_sites == 1 else None


@lru_cache(maxsize=4096)
def _next_prime(above: int) -> int:
    return int(sympy.nextprime(above))


@lru_cache(maxsize=256)
def _next_power(least: int) -> int:
    """The smallest p**e >= least with e >= 2."""
    exponents = range(2, max(3, least.bit_length() + 1))
    return min(int(_next_prime(smallest_root(least, e) - 1) ** e) for e in exponents)


@lru_cache(maxsize=256)
def _smallest_window(n_classes: int, count: int) -> tuple[int, ...]:
    """The smallest primes in a row, so many, that multiply to N or more.

    No other set of primes holds N classes with a smaller largest alphabet.
    """
    primes = [_next_prime(smallest_root(n_classes, count) - 1)]
    while len(primes) < count:
        primes.append(_next_prime(primes[-1]))
    while primes[0] > 2:
        lower = [int(sympy.prevprime(primes[0])), *primes[:-1]]
        if math.prod(lower) < n_classes:
            break
        primes = lower
    return tuple(primes)


# --- one choice


def _choice(n_classes: int, code: _Code, size: _HeadSize, trunk_parameters: int | None) -> Choice:
    parameters, one_hot = size.of(code), size.one_hot(n_classes)
    bits = n_classes * math.log2(n_classes)
    warnings = []
    if parameters >= one_hot and code.family != "one-hot":
        warnings.append(
            f"the code saves nothing: the head has {parameters / one_hot:.3g} times one-hot's size"
        )
    if code.distance == 1:
        warnings.append("distance 1: no error is corrected and no learner may be lost")
    if code.family == "simplex" and not sympy.isprime(code.sizes[0]):
        warnings.append(
            f"the field of {code.sizes[0]} elements needs galois: "
            "pip install 'labelmapping[fields]'"
        )
    if trunk_parameters is not None:
        held = BITS_PER_PARAMETER * (trunk_parameters + size.of_hidden)
        if held < bits:
            warnings.append(
                f"trunk and hidden layers hold about {held:,} bits at {BITS_PER_PARAMETER} a "
                f"parameter (Allen-Zhu and Li 2024); {n_classes:,} classes with an arbitrary "
                f"code need {bits:,.0f}"
            )
    return Choice(
        n_classes=n_classes,
        family=code.family,
        alphabet_sizes=code.sizes,
        n_sites=code.n_sites,
        dimension=code.dimension,
        min_distance=code.distance,
        errors_corrected=(code.distance - 1) // 2,
        sites_that_may_be_lost=code.distance - 1,
        capacity=code.capacity,
        spare=code.capacity - n_classes,
        mutual_information=_largest_mutual_information(n_classes, code),
        head_parameters=parameters,
        head_bytes=parameters * FLOAT32_BYTES,
        one_hot_parameters=one_hot,
        one_hot_bytes=one_hot * FLOAT32_BYTES,
        ratio=one_hot / parameters,
        bits_to_hold=bits,
        warnings=tuple(warnings),
    )


def _largest_mutual_information(n_classes: int, code: _Code) -> float:
    """Of two sites, in bits: ids in a row fill the cells of up to k sites evenly."""
    if code.n_sites == 1:
        return 0.0
    if code.dimension == 1:
        return math.log2(n_classes)
    shared = [
        _bits_left(n_classes, p * q) - _bits_left(n_classes, p) - _bits_left(n_classes, q)
        for p, q in set(combinations(code.sizes, 2))
    ]
    # The sums cancel: what is beyond 12 decimals is rounding.
    return max(0.0, round(max(shared) + math.log2(n_classes), 12))


def _bits_left(n_classes: int, cells: int) -> float:
    """Bits that stay unknown of the class when the cell is known, N ids filling cells evenly."""
    each, more = divmod(n_classes, cells)
    left = (cells - more) * each * math.log2(each) if each else 0.0
    return (left + more * (each + 1) * math.log2(each + 1)) / n_classes


# --- refusals


def _what_binds(request: _Request, size: _HeadSize) -> str:
    """Which constraint rules everything out, and the nearest value that would do."""
    n_classes = request.n_classes
    # The fewest sites that do: no budget is left that would pay for more.
    plain = replace(request, distance=request.distance or 1, max_alphabet=None, max_parameters=None)
    codes = _search(plain, size)
    asked = _asked(request)
    if not codes:
        if request.families == ("one-hot",):
            return f"family one-hot has 1 site and distance 1, got {asked}"
        fewer = _most_classes(plain, size)
        return (
            f"n_classes {n_classes:,}{asked and ' with '}{asked} needs numbers beyond int64 in "
            f"every code of family {', '.join(request.families)}; {fewer:,} classes would do"
        )
    if request.max_alphabet is not None:
        within = [code for code in codes if code.sizes[-1] <= request.max_alphabet]
        if not within:
            return _alphabet_binds(request, codes)
        codes = within
    smallest = min(codes, key=size.of)
    sizes = " ".join(map(str, smallest.sizes[:8])) + (" ..." if smallest.n_sites > 8 else "")
    if request.max_alphabet is not None:
        asked += f"{asked and ' and '}max_alphabet {request.max_alphabet:,}"
    text = (
        f"max_parameters must be at least {size.of(smallest):,} for {n_classes:,} classes"
        f"{asked and ' with '}{asked} ({smallest.family}, alphabets {sizes}); "
        f"got {request.max_parameters:,}"
    )
    for distance in range((request.distance or 1) - 1, 0, -1):
        if _search(replace(request, distance=distance), size):
            return f"{text}, enough for distance {distance}"
    return text


def _most_classes(request: _Request, size: _HeadSize) -> int:
    """A number of classes as near below the one asked as halving finds, that some code holds."""
    works, fails = 2, request.n_classes
    while fails - works > 1:
        middle = (works + fails) // 2
        if _search(replace(request, n_classes=middle), size):
            works = middle
        else:
            fails = middle
    return works


def _alphabet_binds(request: _Request, codes: Sequence[_Code]) -> str:
    """The refusal where every one of these codes has a larger alphabet than is allowed."""
    largest, n_classes = request.max_alphabet or 0, request.n_classes
    asked = _asked(request)
    text = f"max_alphabet {largest:,}{asked and ' with '}{asked}"
    least = min(code.sizes[-1] for code in codes)
    held = _roomiest(request, request.sites)
    if held is None:
        return f"{text} allows no code at all; it must be at least {least:,}"
    factors = [str(size) for size in held.sizes[: held.dimension]]
    product = " x ".join(factors)
    if held.family == "simplex" and held.dimension > 1:
        product = f"{factors[0]}^{held.dimension}"
    text += (
        f" holds at most {held.capacity:,} classes ({product}, {held.family}); "
        f"{n_classes:,} need max_alphabet at least {least:,}"
    )
    if request.sites is not None:
        for n_sites in range(request.sites + 1, MOST_SITES + 1):
            longer = _roomiest(request, n_sites)
            if longer is not None and longer.capacity >= n_classes:
                return f"{text}, or {n_sites} sites"
    return text


def _roomiest(request: _Request, sites: int | None) -> _Code | None:
    """The code for the most classes with these sites and alphabets up to `max_alphabet`."""
    distance, limit = request.distance or 1, request.max_alphabet or 0
    # One more site multiplies the classes by 2 or more.
    lengths = range(distance, distance + 63) if sites is None else range(sites, sites + 1)
    codes: list[_Code] = []
    for n_sites in lengths:
        widest: list[tuple[str, tuple[int, ...]]] = []
        primes = _largest_primes(limit, n_sites)
        if "mixed" in request.families and len(primes) == n_sites:
            widest.append(("mixed", primes))
        order = min(_largest_field(limit), LARGEST_FACTOR)
        if "simplex" in request.families and order >= n_sites:
            widest.append(("simplex", (order,) * n_sites))
        if "one-hot" in request.families and n_sites == 1:
            widest.append(("one-hot", (limit,)))
        for family, sizes in widest:
            # A high dimension may pass int64 where a lower one does not.
            for dimension in range(n_sites - distance + 1, 0, -1):
                code = _Code(family, sizes, dimension)
                if code.is_in_int64:
                    codes.append(code)
                    break
    return max(codes, key=lambda code: code.capacity, default=None)


@lru_cache(maxsize=4096)
def _previous_prime(below: int) -> int:
    return int(sympy.prevprime(below))


def _largest_primes(limit: int, count: int) -> tuple[int, ...]:
    """The largest primes up to `limit`, ascending; fewer where there are no more."""
    primes: list[int] = []
    below = limit + 1
    while len(primes) < count and below > 2:
        below = _previous_prime(below)
        primes.insert(0, below)
    return tuple(primes)


@lru_cache(maxsize=256)
def _largest_field(limit: int) -> int:
    """The largest prime power up to `limit`, at least 2."""
    order = _previous_prime(limit + 1)
    for exponent in range(2, limit.bit_length()):
        root = int(sympy.integer_nthroot(limit, exponent)[0])
        order = max(order, _previous_prime(root + 1) ** exponent)
    return order


def _asked(request: _Request) -> str:
    """The sites and the distance of a request in words; empty where neither is asked."""
    parts = []
    if request.sites is not None:
        parts.append(f"{request.sites} site{'s' if request.sites > 1 else ''}")
    if request.distance is not None:
        lost = "" if request.lost_sites is None else f" (lost_sites {request.lost_sites})"
        parts.append(f"distance {request.distance}{lost}")
    return " and ".join(parts)
