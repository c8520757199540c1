"""Code matrices of two-class sites: what `EcocMapping` is made of. Knows no mapping.

Rows are classes, columns sites; 1 is the positive side, 0 the negative one, and -1 in
ternary codes is neither (0 in the literature, where the sides are 1 and -1).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .fields import import_galois
from .streams import draw_below

__all__ = [
    "bch",
    "climbed",
    "exhaustive",
    "hadamard",
    "linear_distance",
    "one_versus_one",
    "one_versus_rest",
    "random_dense",
    "random_sparse",
]

Matrix = NDArray[np.int8]
# A column (or row) without what it needs is drawn again this often.
ATTEMPTS = 200
# BCH codes have up to 2^16 - 1 sites.
LARGEST_DEGREE = 16
# Entries drawn at a time: 40 bytes each until they are bits.
DRAWN_AT_ONCE = 1 << 22
# Largest linear codes whose words are all weighed: 2^20 of them.
WEIGHED_BITS = 20


def exhaustive(n_classes: int) -> Matrix:
    """All 2^(N-1) - 1 different ways to split N classes (Dietterich and Bakiri, 1995)."""
    columns = np.arange(2 ** (n_classes - 1) - 1)
    matrix = np.ones((n_classes, columns.size), np.int8)
    for row in range(1, n_classes):
        matrix[row] = columns // 2 ** (n_classes - row - 1) % 2
    return matrix


def one_versus_rest(n_classes: int) -> Matrix:
    """A site a class."""
    return np.eye(n_classes, dtype=np.int8)


def one_versus_one(n_classes: int) -> Matrix:
    """A site a pair of classes, with nothing to say about the others."""
    pairs = np.array(list(combinations(range(n_classes), 2)))
    matrix = np.full((n_classes, len(pairs)), -1, np.int8)
    matrix[pairs[:, 0], np.arange(len(pairs))] = 1
    matrix[pairs[:, 1], np.arange(len(pairs))] = 0
    return matrix


def random_dense(n_classes: int, n_sites: int, seed: int, draw: int) -> Matrix:
    """Fair bits, no site the same for all classes where that can be, rows all different.

    Columns that are constant are drawn again; then rows that repeat an earlier one are.
    """
    columns = np.arange(n_sites)
    matrix = np.empty((n_classes, n_sites), np.int8)
    step = max(1, DRAWN_AT_ONCE // n_classes)
    for start in range(0, n_sites, step):
        block = columns[start : start + step]
        matrix[:, block] = _columns(seed, draw, 0, block, n_classes)
    for attempt in range(1, ATTEMPTS):
        bad = columns[(matrix.min(axis=0) == matrix.max(axis=0)) & (n_classes > 1)]
        if bad.size == 0:
            break
        matrix[:, bad] = _columns(seed, draw, attempt, bad, n_classes)
    words = np.packbits(matrix, axis=1)
    words = words.view(f"V{words.shape[1]}")[:, 0]
    _, first = np.unique(words, return_index=True)
    repeated = np.setdiff1d(np.arange(n_classes), first)
    taken = set(words[first].tolist()) if repeated.size else set()
    attempt, free = 0, 0
    for row in repeated:
        while (word := np.packbits(matrix[row]).tobytes()) in taken:
            attempt += 1
            if attempt < ATTEMPTS * repeated.size:
                counters = (attempt * n_sites + columns).astype(np.uint64)
                matrix[row] = draw_below(_stream(seed, draw, 1), counters, 2)
            else:  # nearly all words are taken: the next free one
                matrix[row] = free >> columns & 1
                free += 1
        taken.add(word)
    return matrix


def _columns(
    seed: int, draw: int, attempt: int, columns: NDArray[np.int64], n_classes: int
) -> Matrix:
    rows = np.arange(n_classes)[:, None]
    counters = ((columns * ATTEMPTS + attempt) << 32) + rows
    return draw_below(_stream(seed, draw, 0), counters.astype(np.uint64), 2).astype(np.int8)


def random_sparse(n_classes: int, n_sites: int, seed: int, draw: int) -> Matrix:
    """Half of the entries abstain; every site has both sides (Allwein et al., 2000)."""
    columns = np.arange(n_sites)
    matrix = np.empty((n_classes, n_sites), np.int8)
    bad, rows = columns, np.arange(n_classes)[:, None]
    for attempt in range(ATTEMPTS):
        counters = ((bad * ATTEMPTS + attempt) << 32) + rows
        drawn = draw_below(_stream(seed, draw, 2), counters.astype(np.uint64), 4)
        matrix[:, bad] = np.where(drawn > 1, -1, drawn)
        bad = columns[~((matrix == 1).any(axis=0) & (matrix == 0).any(axis=0))]
        if bad.size == 0:
            return matrix
    matrix[0, bad], matrix[1, bad] = 0, 1  # two or three classes at most come to this
    return matrix


def _stream(seed: int, draw: int, purpose: int) -> int:
    return (seed * 1_000_003 + draw * 4 + purpose) % 2**64


def climbed(n_classes: int, n_sites: int, seed: int) -> Matrix:
    """Random hill climbing (Dietterich and Bakiri, 1995) from `random_dense`.

    The two nearest rows and the two most alike (or most opposite) columns cross in four
    bits; they are changed wherever that makes the code better: a larger least distance,
    fewer pairs of classes at it, then more different columns.
    """
    matrix = random_dense(n_classes, n_sites, seed, 0)
    best = _quality(matrix)
    failures, step = 0, 0
    while failures < ATTEMPTS:
        rows = _pick(_row_distances(matrix), seed, 2 * step)
        columns = _pick(_column_distances(matrix), seed, 2 * step + 1)
        step += 1
        cells = [(r, c) for r in rows for c in columns]
        chosen = None
        for flips in range(1, 2 ** len(cells)):
            flipped = [cell for i, cell in enumerate(cells) if flips >> i & 1]
            trial = matrix.copy()
            for cell in flipped:
                trial[cell] ^= 1
            quality = _quality(trial)
            if quality > best:
                best, chosen = quality, trial
        if chosen is None:
            failures += 1
        else:
            matrix, failures = chosen, 0
    return matrix


def _row_distances(matrix: Matrix) -> NDArray[np.int64]:
    bits = matrix.astype(np.float64)
    ones = bits.sum(axis=1)
    distances: NDArray[np.float64] = ones[:, None] + ones[None] - 2 * bits @ bits.T
    return distances.round().astype(np.int64)


def _column_distances(matrix: Matrix) -> NDArray[np.int64]:
    """How many classes two sites must differ on to be the same or opposite."""
    distances = _row_distances(matrix.T)
    return np.minimum(distances, len(matrix) - distances)


def _quality(matrix: Matrix) -> tuple[int, int, int, int]:
    n_rows, n_columns = matrix.shape
    upper = np.triu_indices(n_rows, 1)
    rows = _row_distances(matrix)[upper]
    columns = _column_distances(matrix)[np.triu_indices(n_columns, 1)]
    least, least_column = int(rows.min(initial=n_columns)), int(columns.min(initial=n_rows))
    return (
        least,
        -int(np.count_nonzero(rows == least)),
        least_column,
        -int(np.count_nonzero(columns == least_column)),
    )


def _pick(distances: NDArray[np.int64], seed: int, step: int) -> tuple[int, ...]:
    """One of the nearest pairs, drawn; a single line where there is no pair."""
    first, second = np.triu_indices(len(distances), 1)
    if first.size == 0:
        return (0,)
    values = distances[first, second]
    nearest = np.flatnonzero(values == values.min())
    counter = np.array([step], np.uint64)
    chosen = nearest[draw_below(_stream(seed, 0, 3), counter, int(nearest.size))[0]]
    return int(first[chosen]), int(second[chosen])


def hadamard(n_bits: int) -> NDArray[np.int64]:
    """Generator (D, 2^D - 1) of the simplex code: every two words differ at 2^(D-1) sites."""
    columns = np.arange(1, 2**n_bits)
    return columns[None, :] >> np.arange(n_bits)[:, None] & 1


def bch(n_bits: int, distance: int) -> NDArray[np.int64]:
    """Generator (D, n) of a shortened narrow-sense primitive BCH code, distance at least so much.

    The shortest that has room for D bits; Bose and Ray-Chaudhuri (1960), Hocquenghem (1959).
    """
    for degree in range(2, LARGEST_DEGREE + 1):
        length = 2**degree - 1
        cosets = _cosets(length, distance)
        if distance <= length and length - sum(map(len, cosets)) >= n_bits:
            polynomial = _generator_polynomial(degree, cosets)
            # Shortened: words whose first bits are 0, without those bits.
            width = polynomial.bit_length() + n_bits - 1
            rows = np.array([polynomial << shift for shift in range(n_bits)], object)[:, None]
            return np.array(rows >> np.arange(width).astype(object) & 1, np.int64)
    raise ArgumentError(
        f"distance must be reached by a BCH code of at most {2**LARGEST_DEGREE - 1} sites for "
        f"{n_bits} bits, got {distance}"
    )


def _cosets(length: int, distance: int) -> list[list[int]]:
    """The cyclotomic cosets of 1, ..., d - 1: exponents of the generator polynomial's roots."""
    cosets: list[list[int]] = []
    known: set[int] = set()
    for start in range(1, min(distance, length)):
        if start not in known:
            coset = [start]
            while (root := 2 * coset[-1] % length) != start:
                coset.append(root)
            known.update(coset)
            cosets.append(coset)
    return cosets


def _generator_polynomial(degree: int, cosets: list[list[int]]) -> int:
    """The product of the cosets' minimal polynomials, coefficients as bits."""
    galois = import_galois()
    # The primitive polynomials of the published tables, not Conway's.
    modulus = int(galois.matlab_primitive_poly(2, degree))
    powers = [1]
    while len(powers) < 2**degree - 1:
        power = powers[-1] << 1
        powers.append(power ^ modulus if power >> degree else power)
    logs = {power: exponent for exponent, power in enumerate(powers)}
    product = 1
    for coset in cosets:
        minimal = [1]  # coefficients in the extension field, lowest first
        for root in coset:
            shifted = [0, *minimal]
            for i, coefficient in enumerate(minimal):
                if coefficient:
                    shifted[i] ^= powers[(logs[coefficient] + root) % len(powers)]
            minimal = shifted
        product = _carryless(product, sum(bit << i for i, bit in enumerate(minimal)))
    return product


def _carryless(a: int, b: int) -> int:
    total = 0
    while b:
        if b & 1:
            total ^= a
        a, b = a << 1, b >> 1
    return total


def linear_distance(generator: NDArray[np.int64]) -> int | None:
    """The least weight of a binary linear code's words, by weighing all; None where too many."""
    n_bits, length = generator.shape
    if n_bits > WEIGHED_BITS or (2**n_bits) * length > 2**31:
        return None
    packed = np.packbits(generator.astype(np.uint8), axis=1)
    words = np.zeros((1, packed.shape[1]), np.uint8)
    for row in packed:
        words = np.concatenate([words, words ^ row])
    ones = np.array([number.bit_count() for number in range(256)], np.uint8)
    weights = ones[words].sum(axis=1, dtype=np.int64)
    return int(weights[1:].min())
