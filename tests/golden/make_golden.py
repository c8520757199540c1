"""Makes `codes.json`: codewords and their inverses by other people's number theory.

Made with galois 0.4.11 and sympy 1.14.0 (the file repeats the versions); this
package is not imported. Run: ``python tests/golden/make_golden.py``

- evaluation: base-p digits by `sympy.ntheory.digits`, their polynomial over
  `galois.GF(p)` evaluated at the points by `galois.Poly`.
- interpolation: the same way back, `galois.lagrange_poly` through k points.
- reed_solomon: the parity-check matrix and the distance of `galois.ReedSolomon`,
  whose codewords are the values of polynomials at consecutive powers of alpha.
- chinese_remainder: `sympy.ntheory.modular.crt` of random residues.
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
    }
    Path(__file__).with_name("codes.json").write_text(as_text(content), encoding="utf-8")


if __name__ == "__main__":
    main()
