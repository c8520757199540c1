"""Makes `codes.json`: codewords and their inverses by other people's number theory.

Made with galois 0.4.11 and sympy 1.14.0 (the file repeats the versions); this
package is not imported. Run: ``python tests/golden/make_golden.py``

- evaluation: base-p digits by `sympy.ntheory.digits`, their polynomial over
  `galois.GF(p)` evaluated at the points by `galois.Poly`.
- interpolation: the same way back, `galois.lagrange_poly` through k points.
- reed_solomon: the parity-check matrix and the distance of `galois.ReedSolomon`,
  whose codewords are the values of polynomials at consecutive powers of alpha.
- chinese_remainder: `sympy.ntheory.modular.crt` of random residues.
- field_evaluation: as evaluation, over `galois.GF(q)` of prime-power order; at "infinity"
  the leading digit.
- field_reed_solomon: systematic codewords of random messages by `galois.ReedSolomon.encode`,
  over prime and prime-power fields.
- polynomial_remainder: `galois.Poly` of the id's digits modulo `galois.Poly` of the site's.
- irreducible: how many monic irreducible polynomials `galois.irreducible_polys` finds, and
  its first ones.
- bch: generator polynomial (bit i is the coefficient of x^i) and distance of `galois.BCH`.
"""

import json
import random
from pathlib import Path
from typing import Any

SEED = 20901
CIFAR, CJK, REPUBLIC = 100, 20901, 7409
# The largest prime whose square int64 holds.
LARGE_PRIME = 3_037_000_493

# p, k, N, points, and how many random ids beside the first and the last (None: every id).
EVALUATIONS = [
    (11, 2, CIFAR, [1, 2, 3, 4, 5, 6], None),
    (181, 2, CJK, [1, 2, 3, 4, 5, 6], 60),
    (127, 2, REPUBLIC, [1, 2, 3, 4, 5, 6], 60),
    (5, 3, 125, [0, 1, 2, 3, 4], None),
    (2, 2, 4, [1, 0], None),
    (7, 1, 7, [3, 5], None),
    (17, 4, 80_000, [16, 2, 0, 9, 11, 5], 40),
    (101, 3, 10**6, [55, 3, 100, 0], 40),
    (LARGE_PRIME, 2, 2**62, [1, 2, LARGE_PRIME - 1], 20),
]
# p, k, points of the k sites.
INTERPOLATIONS = [
    (181, 2, [1, 2]),
    (181, 2, [6, 3]),
    (5, 3, [4, 0, 2]),
    (17, 4, [16, 2, 0, 9]),
    (LARGE_PRIME, 2, [2, 1]),
]
# p, n, k, with n a divisor of p - 1.
REED_SOLOMON = [(11, 10, 3), (11, 5, 2), (127, 6, 2), (181, 6, 2), (13, 12, 4)]
# N, moduli of k sites, and the rest of the alphabets. Not every residue pair is a class.
REMAINDERS = [
    (CJK, [149, 151], [157, 163, 167, 173, 179]),
    (REPUBLIC, [137, 107], [109, 113, 127, 131]),
    (CIFAR, [11, 13], [17, 19, 23]),
    (1001, [7, 11, 13], []),
    (792, [9, 8, 25], [49, 11]),
    (10**8, [463, 467, 479], []),
    (2**62, [LARGE_PRIME, 3_036_999_999], []),
]
# q, k, N, points, and how many random ids beside the first and the last (None: every id).
INFINITY = "infinity"
FIELD_EVALUATIONS: list[tuple[int, int, int, list[Any], int | None]] = [
    (4, 2, 16, [1, 2, 3, 0, INFINITY], None),
    (4, 3, 64, [INFINITY, 3, 0, 1], None),
    (8, 2, 64, [1, 2, 3, 4, 5, 6, 7, 0, INFINITY], None),
    (9, 2, 81, [8, 1, 0, 5, INFINITY, 2], None),
    (9, 4, 6000, [3, 4, INFINITY, 6, 1], 40),
    (16, 3, 4096, [15, 7, 0, 9, 10, INFINITY], 60),
    (25, 2, 600, [1, 5, 24, 0, 13, INFINITY], 60),
    (27, 3, 19_683, [26, 3, 9, 0, INFINITY, 14], 60),
    (256, 2, 60_000, [1, 2, 255, 29, 0, INFINITY], 60),
    (256, 7, 2**56, [283 - 256, 128, INFINITY, 0, 77, 254, 1, 99], 30),
    (243, 2, 59_049, [1, 3, 242, 81, 0, INFINITY], 60),
    (243, 7, 243**7, [2, 240, 0, INFINITY, 121, 17, 55], 30),
    (2**14, 2, 10**8, [1, 2, 16_383, INFINITY], 40),
    # Prime, with the point at infinity.
    (2, 2, 4, [INFINITY, 1, 0], None),
    (5, 3, 125, [4, INFINITY, 0, 2, 1, 3], None),
    (10_007, 2, 10**8, [1, 10_006, INFINITY, 0], 40),
]
# q, n, k, with n a divisor of q - 1.
FIELD_REED_SOLOMON = [
    (11, 10, 3),
    (31, 10, 4),
    (127, 126, 2),
    (4, 3, 2),
    (8, 7, 3),
    (9, 8, 3),
    (9, 4, 2),
    (16, 15, 5),
    (16, 5, 3),
    (25, 24, 4),
    (27, 13, 3),
    (256, 51, 7),
    (243, 22, 5),
]
# q, the moduli's coefficients from the highest power on, how many of the smallest alphabets
# multiply to N, N (None: the capacity).
POLYNOMIAL_REMAINDERS: list[tuple[int, list[list[int]], int, int | None]] = [
    (
        2,
        [[1, 0, 0, 0, 1, 1, 0, 1, 1], [1, 0, 0, 0, 1, 1, 1, 0, 1], [1, 0, 0, 1, 0, 1, 0, 1, 1]],
        2,
        50_000,
    ),
    (2, [[1, 0], [1, 1], [1, 1, 1], [1, 0, 1, 1], [1, 0, 0, 0, 0, 1, 1]], 3, None),
    (2, [[1, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0, 1], [1, 0, 0, 1, 0, 1]], 2, None),
    (3, [[1, 0, 1], [1, 1, 2], [1, 2, 2], [1, 0, 0]], 2, None),
    (3, [[2, 0, 2], [2, 1, 1, 1], [2, 1]], 2, None),  # not monic
    (4, [[1, 0], [2, 3], [1, 1, 2], [3, 1, 0, 1]], 2, None),
    (9, [[1, 4], [3, 5], [1, 0, 0], [5, 1, 7]], 2, None),
    (25, [[1, 0, 2], [7, 24]], 1, None),
    (2, [[1, *[0] * 27, 1, 0, 0, 1], [1, *[0] * 24, 1, 0, 0, 0, 1, 1, 1]], 2, 2**62),
]
IRREDUCIBLE = [(2, d) for d in range(1, 13)] + [(3, d) for d in range(1, 7)]
IRREDUCIBLE += [(4, 1), (4, 2), (4, 3), (4, 4), (5, 3), (8, 2), (9, 2), (9, 3), (16, 2), (25, 2)]
# n, k; wherever k is at most 40, codes of n sites for 2^k classes.
BCH = [(7, 4), (15, 11), (15, 7), (15, 5), (31, 26), (31, 21), (31, 16), (31, 11), (31, 6)]
BCH += [(63, k) for k in (39, 36, 30, 24, 18, 16, 10, 7)]
BCH += [(127, k) for k in (36, 29, 22, 15, 8)] + [(255, 37), (255, 13), (511, 28)]


def evaluations(rng: random.Random) -> list[dict[str, Any]]:
    import galois
    from sympy.ntheory import digits

    cases = []
    for p, k, n_classes, points, count in EVALUATIONS:
        if count is None:
            ids = list(range(n_classes))
        else:
            ids = sorted({0, 1, p - 1, p, n_classes - 1, *rng.sample(range(n_classes), count)})
        field = galois.GF(p)
        codewords = [
            galois.Poly(digits(x, p, k)[1:], field=field)(field(points)).tolist() for x in ids
        ]
        cases.append(
            {
                "field_order": p,
                "dimension": k,
                "n_classes": n_classes,
                "points": points,
                "ids": ids,
                "codewords": codewords,
            }
        )
    return cases


def interpolations(rng: random.Random) -> list[dict[str, Any]]:
    import galois

    cases = []
    for p, k, points in INTERPOLATIONS:
        field = galois.GF(p)
        symbols = [[rng.randrange(p) for _ in range(k)] for _ in range(12)]
        ids = []
        for values in symbols:
            polynomial = galois.lagrange_poly(field(points), field(values))
            # Coefficients of higher degree first: Horner's rule in p.
            x = 0
            for coefficient in polynomial.coefficients(k).tolist():
                x = x * p + coefficient
            ids.append(x)
        cases.append(
            {"field_order": p, "dimension": k, "points": points, "symbols": symbols, "ids": ids}
        )
    return cases


def reed_solomon_codes() -> list[dict[str, Any]]:
    import galois

    cases = []
    for p, n, k in REED_SOLOMON:
        field = galois.GF(p)
        alpha = field.primitive_element ** ((p - 1) // n)
        code = galois.ReedSolomon(n, k, field=field, alpha=alpha)
        # Its words are written with the highest power first.
        points = [int(alpha**j) for j in reversed(range(n))]
        cases.append(
            {
                "field_order": p,
                "dimension": k,
                "points": points,
                "distance": int(code.d),
                "parity_check": code.H.tolist(),
            }
        )
    return cases


def remainders(rng: random.Random) -> list[dict[str, Any]]:
    from sympy.ntheory.modular import crt

    cases = []
    for n_classes, moduli, rest in REMAINDERS:
        symbols = [[rng.randrange(q) for q in moduli] for _ in range(12)]
        ids = [int(crt(moduli, residues)[0]) for residues in symbols]
        cases.append(
            {
                "n_classes": n_classes,
                "alphabet_sizes": moduli + rest,
                "dimension": len(moduli),
                "symbols": symbols,
                "ids": ids,
            }
        )
    return cases


def field_evaluations(rng: random.Random) -> list[dict[str, Any]]:
    import galois
    from sympy.ntheory import digits

    cases = []
    for q, k, n_classes, points, count in FIELD_EVALUATIONS:
        if count is None:
            ids = list(range(n_classes))
        else:
            ids = sorted({0, 1, q - 1, q, n_classes - 1})
            ids = sorted({*ids, *(rng.randrange(n_classes) for _ in range(count))})
        field = galois.GF(q, compile="python-calculate")
        codewords = []
        for x in ids:
            coefficients = digits(x, q, k)[1:]
            polynomial = galois.Poly(coefficients, field=field)
            codewords.append(
                [
                    coefficients[0] if point == INFINITY else int(polynomial(field(point)))
                    for point in points
                ]
            )
        cases.append(
            {
                "field_order": q,
                "dimension": k,
                "n_classes": n_classes,
                "points": points,
                "ids": ids,
                "codewords": codewords,
            }
        )
    return cases


def field_reed_solomon_codes(rng: random.Random) -> list[dict[str, Any]]:
    import galois

    cases = []
    for q, n, k in FIELD_REED_SOLOMON:
        field = galois.GF(q)
        alpha = field.primitive_element ** ((q - 1) // n)
        code = galois.ReedSolomon(n, k, field=field, alpha=alpha)
        messages = [[rng.randrange(q) for _ in range(k)] for _ in range(6)]
        cases.append(
            {
                "field_order": q,
                "dimension": k,
                "points": [int(alpha**j) for j in reversed(range(n))],
                "distance": int(code.d),
                "messages": messages,
                "codewords": [code.encode(field(message)).tolist() for message in messages],
            }
        )
    return cases


def polynomial_remainders(rng: random.Random) -> list[dict[str, Any]]:
    import galois

    cases = []
    for q, moduli, k, n_classes in POLYNOMIAL_REMAINDERS:
        field = galois.GF(q, compile="python-calculate")
        polynomials = [galois.Poly(modulus, field=field) for modulus in moduli]
        capacity = q ** sum(sorted(polynomial.degree for polynomial in polynomials)[:k])
        limit = n_classes or capacity
        ids = sorted({0, 1, limit - 1, *(rng.randrange(limit) for _ in range(40))})
        cases.append(
            {
                "field_order": q,
                "dimension": k,
                "n_classes": limit,
                "capacity": capacity,
                "moduli": [int(polynomial) for polynomial in polynomials],
                "ids": ids,
                "codewords": [
                    [
                        int(galois.Poly.Int(x, field=field) % polynomial)
                        for polynomial in polynomials
                    ]
                    for x in ids
                ],
            }
        )
    return cases


def irreducible_polynomials() -> list[dict[str, Any]]:
    import galois

    cases = []
    for q, degree in IRREDUCIBLE:
        found = [int(polynomial) for polynomial in galois.irreducible_polys(q, degree)]
        cases.append({"field_order": q, "degree": degree, "count": len(found), "first": found[:5]})
    return cases


def bch_codes() -> list[dict[str, Any]]:
    import galois

    cases = []
    for n, k in BCH:
        code = galois.BCH(n, k)
        cases.append(
            {
                "n_sites": n,
                "n_bits": k,
                "distance": int(code.d),
                "generator": int(code.generator_poly),
            }
        )
    return cases


def as_text(content: dict[str, Any]) -> str:
    """JSON with one field of one case a line."""
    lines = []
    for name, cases in content.items():
        if isinstance(cases, dict):
            lines.append(f" {json.dumps(name)}: {json.dumps(cases)}")
            continue
        texts = [
            ",\n   ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in case.items())
            for case in cases
        ]
        body = "},\n  {".join(texts)
        lines.append(f" {json.dumps(name)}: [\n  {{{body}}}\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    import galois
    import sympy

    rng = random.Random(SEED)
    content: dict[str, Any] = {
        "made_with": {"galois": galois.__version__, "sympy": sympy.__version__, "seed": SEED},
        "evaluation": evaluations(rng),
        "interpolation": interpolations(rng),
        "reed_solomon": reed_solomon_codes(),
        "chinese_remainder": remainders(rng),
        "field_evaluation": field_evaluations(rng),
        "field_reed_solomon": field_reed_solomon_codes(rng),
        "polynomial_remainder": polynomial_remainders(rng),
        "irreducible": irreducible_polynomials(),
        "bch": bch_codes(),
    }
    Path(__file__).with_name("codes.json").write_text(as_text(content), encoding="utf-8")


if __name__ == "__main__":
    main()
