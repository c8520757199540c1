"""The compiled loops: symbols, resolution, one row's search and one row's scan.

A row is one example's log-probs over the present sites, one behind the other,
in float64; scores are summed in site order, the prior last, so that every path
finds the same bits. Arguments come from `CodeArrays` and are trusted.

Candidates pass from loop to loop in batches: a call of a compiled function that
takes arrays costs as much as scoring five classes. All loops are in one file since
numba's cache notices changes in the file of the function it keeps, not in others.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..mappings import linear as linear_codes
from .codes import BITS, LINEAR, LOWEST, MIXED, SIMPLEX, TABLE

__all__ = ["BOUND", "SCAN", "scan_rows", "search_rows"]

# With fewer classes than this a search that may not pay is not tried.
FEW = 3_000_000
# Bins of the histograms that plans are made by.
BINS = 64
# What listing a symbol costs, in tuples: lists are sorted.
LISTED = 1.0
# Classes scored at a time by the scan: their scores stay in the first cache.
BLOCK = 2048
# Candidates resolved and scored at a time by the search.
BATCH = 256
# Seeds per tuple of sites, and new tuples in the first round.
SEEDS, FIRST_ROUND = 36, 512
# How many of a site's best symbols may be peeled: at dimension 2, where their classes are
# searched, and above it, where they are all scored.
MOST_SLICED, MOST_PEELED = 6, 3
BOUND, SCAN = 0, 1
# Below this a quotient may be taken in floats.
FAST = 1 << 50
# Of a class id, in binary linear codes.
BITS_AT_A_TIME = linear_codes.TABLE.bit_length() - 1
# More than any finite deficit; and what sums of deficits may reach without rounding to it.
HUGE = np.finfo(np.float64).max
LARGEST = 1e290


@compiled(inline="always")
def _divide(x, size, reciprocal):
    """Quotient and remainder of 0 <= x by a size; `reciprocal` is 1/size.

    A product of floats takes a fifth of an integer division's time; its quotient is
    right within one below 2^50.
    """
    if x < FAST:
        high = int(x * reciprocal)
        low = x - high * size
        if low < 0:
            high -= 1
            low += size
        elif low >= size:
            high += 1
            low -= size
    else:
        high = x // size
        low = x - high * size
    return high, low


@compiled
def _long_symbol(dimension, size, point, x):
    """Symbol of class x in a simplex code of three digits or more (Horner's rule)."""
    power = size ** (dimension - 1)
    value = 0
    for _ in range(dimension):
        digit = x // power
        x -= digit * power
        value = (value * point + digit) % size
        power //= size
    return value


@compiled(inline="always")
def _symbol(kind, dimension, size, reciprocal, point, x):
    """Symbol of class x at a site; numbers only, so that it inlines without a cost."""
    if kind == MIXED:
        _, symbol = _divide(x, size, reciprocal)
    elif kind == BITS:
        symbol = (x >> point) & 1
    elif dimension == 2:
        high, low = _divide(x, size, reciprocal)
        _, symbol = _divide(low + high * point, size, reciprocal)
    elif dimension == 1:
        symbol = x
    else:
        symbol = _long_symbol(dimension, size, point, x)
    return symbol


@compiled(inline="always")
def _add(characteristic, width, a, b):
    """The sum of two numbers digit by digit, without carries."""
    if characteristic == 2:
        total = a ^ b
    elif width == 1:
        total = a + b
        total -= characteristic if total >= characteristic else 0
    else:
        total, power = 0, 1
        for _ in range(width):
            digit = a % characteristic + b % characteristic
            total += (digit - characteristic if digit >= characteristic else digit) * power
            a //= characteristic
            b //= characteristic
            power *= characteristic
    return total


@compiled
def _subtract(characteristic, width, a, b):
    """The difference of two numbers digit by digit, without borrowing."""
    total, power = 0, 1
    for _ in range(width):
        total += (a % characteristic - b % characteristic) % characteristic * power
        a //= characteristic
        b //= characteristic
        power *= characteristic
    return total


@compiled(inline="always")
def _linear_symbol(linear, site, x):
    """Symbol of class x in a linear code: looked up for a few digits of x at a time."""
    characteristic, base, _, widths, tables, _ = linear
    if characteristic == 2:
        symbol = tables[site, 0, x & (base - 1)]
        for c in range(1, tables.shape[1]):
            x >>= BITS_AT_A_TIME
            symbol ^= tables[site, c, x & (base - 1)]
    else:
        rest = x // base
        symbol = tables[site, 0, x - rest * base]
        for c in range(1, tables.shape[1]):
            high = rest // base
            part = tables[site, c, rest - high * base]
            symbol = _add(characteristic, widths[site], symbol, part)
            rest = high
    return symbol


@compiled
def _looked_up(kind, linear, site, x):
    """Symbol of class x in a LINEAR or TABLE code; apart, for it would slow the others' loops."""
    if kind == TABLE:
        return np.int64(linear[5][site, x])
    return _linear_symbol(linear, site, x)


@compiled
def _resolve(code, places, inverses, symbols, n, ids):
    """Classes of n tuples, symbols (k, n); any id outside 0..N-1 is no class."""
    kind, _, dimension, sizes, points, reciprocals, linear = code
    if kind == BITS:
        for c in range(n):
            x = 0
            for j in range(dimension):
                x |= symbols[j, c] << points[places[j]]
            ids[c] = x
        return
    if kind == TABLE:
        for c in range(n):
            number = 0
            for j in range(dimension):
                number = number * sizes[places[j]] + symbols[j, c]
            ids[c] = inverses[0, number]
        return
    if kind == LINEAR:
        for c in range(n):
            x = inverses[0, symbols[0, c]]
            for j in range(1, dimension):
                x = _add(linear[0], linear[2], x, inverses[j, symbols[j, c]])
            ids[c] = x
        return
    if kind == MIXED:
        for c in range(n):
            x = symbols[0, c]
            product = sizes[places[0]]
            for j in range(1, dimension):
                size = sizes[places[j]]
                reciprocal = reciprocals[places[j]]
                _, rest = _divide(x, size, reciprocal)
                rest = symbols[j, c] - rest
                rest += size if rest < 0 else 0
                _, digit = _divide(rest * inverses[j, 0], size, reciprocal)
                x += product * digit
                product *= size
            ids[c] = x
        return
    size = sizes[0]
    for c in range(n):
        x = 0
        power = 1
        for j in range(dimension):
            _, digit = _divide(symbols[0, c] * inverses[j, 0], size, reciprocals[0])
            for i in range(1, dimension):
                _, digit = _divide(digit + symbols[i, c] * inverses[j, i], size, reciprocals[0])
            x += digit * power
            power *= size
        ids[c] = x if dimension > 1 else symbols[0, c]


@compiled
def _is_allowed(x, allowed, mask):
    if mask.size:
        return mask[x]
    if allowed.size == 0:
        return True
    place = np.searchsorted(allowed, x)
    return place < allowed.size and allowed[place] == x


@compiled
def _keep(score, x, top_scores, top_ids, count):
    """Put a class into its place among the best k, once; ties to the lower id."""
    k = top_scores.size
    for i in range(count):
        if top_ids[i] == x:
            return count
    place = count if count < k else k - 1
    while place > 0 and (
        score > top_scores[place - 1] or (score == top_scores[place - 1] and x < top_ids[place - 1])
    ):
        top_scores[place] = top_scores[place - 1]
        top_ids[place] = top_ids[place - 1]
        place -= 1
    top_scores[place] = score
    top_ids[place] = x
    return min(count + 1, k)


@compiled
def _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count):
    """Score n classes and keep those among the best k.

    `gaps` are their deficits at the sites already known, `others` are the sites left:
    a class is given up as soon as its deficit passes what the last one kept has.
    """
    kind, n_classes, dimension, sizes, points, reciprocals, linear = code
    row, offsets, maxima, bound, unit, scale = view
    prior, allowed, mask = filters
    n_others, m, k = others.size, offsets.size, top_scores.size
    last = top_scores[count - 1] if count == k else -np.inf
    for c in range(n):
        x, gap = ids[c], gaps[c]
        if x < 0 or x >= n_classes:
            continue
        room = bound - last + unit * (scale + bound - last)
        for i in range(n_others):
            site = others[i]
            if kind < LINEAR:
                symbol = _symbol(kind, dimension, sizes[site], reciprocals[site], points[site], x)
            else:
                symbol = _looked_up(kind, linear, site, x)
            gap += maxima[site] - row[offsets[site] + symbol]
            if gap > room:
                break
        if gap > room:
            continue
        score = 0.0
        for site in range(m):
            if kind < LINEAR:
                symbol = _symbol(kind, dimension, sizes[site], reciprocals[site], points[site], x)
            else:
                symbol = _looked_up(kind, linear, site, x)
            score += row[offsets[site] + symbol]
        if prior.size:
            score += prior[x]
        if count == k and (score < last or (score == last and x > top_ids[count - 1])):
            continue
        if _is_allowed(x, allowed, mask):
            count = _keep(score, x, top_scores, top_ids, count)
            last = top_scores[count - 1] if count == k else -np.inf
    return count


@compiled
def _best_symbols(row, offsets, sizes, count):
    """The `count` best symbols of each site, best first, and their deficits below its maximum."""
    symbols = np.full((sizes.size, count), -1, np.int64)
    deficits = np.full((sizes.size, count), np.inf)
    for site in range(sizes.size):
        start, found, worst = offsets[site], 0, -np.inf
        for s in range(sizes[site]):
            value = row[start + s]
            if found == count and not value > worst:
                continue
            place = found if found < count else count - 1
            while place > 0 and value > deficits[site, place - 1]:
                deficits[site, place] = deficits[site, place - 1]
                symbols[site, place] = symbols[site, place - 1]
                place -= 1
            deficits[site, place] = value
            symbols[site, place] = s
            found = min(found + 1, count)
            worst = deficits[site, found - 1]
        top = deficits[site, 0]
        for i in range(found):
            deficits[site, i] = top - deficits[site, i]
    return symbols, deficits


@compiled
def _near(row, offsets, sizes, maxima, span, best, best_deficits, near):
    """Each site's symbols with a deficit up to `span`, in no order, without the best few."""
    symbols, deficits, stops = near
    count = best.shape[1]
    for site in range(sizes.size):
        start, top, worst = offsets[site], maxima[site], best_deficits[site, count - 1]
        n = start
        for s in range(sizes[site] if worst <= span else 0):
            deficit = top - row[start + s]
            if worst <= deficit <= span:
                if deficit == worst:
                    listed = False
                    for i in range(count):
                        listed = listed or best[site, i] == s
                    if listed:
                        continue
                symbols[n] = s
                deficits[n] = deficit
                n += 1
        stops[site] = n


@compiled
def _narrow(offsets, span, near):
    """Drop what has a deficit above `span`."""
    symbols, deficits, stops = near
    for site in range(offsets.size):
        n = offsets[site]
        for place in range(offsets[site], stops[site]):
            if deficits[place] <= span:
                symbols[n], deficits[n] = symbols[place], deficits[place]
                n += 1
        stops[site] = n


@compiled
def _sort_symbols(offsets, caps, best, best_deficits, near, write):
    """List each site's symbols with a deficit up to its cap, ascending, the best few as in `best`.

    The list of a site without its first so many best symbols is then the rest of it.
    """
    symbols, deficits, stops = write
    near_symbols, near_deficits, near_stops = near
    count = best.shape[1]
    for site in range(offsets.size):
        start, cap = offsets[site], caps[site]
        n = start
        for i in range(count):
            if best_deficits[site, i] <= cap:
                symbols[n], deficits[n] = best[site, i], best_deficits[site, i]
                n += 1
        first = n
        for place in range(start, near_stops[site]):
            if near_deficits[place] <= cap:
                symbols[n], deficits[n] = near_symbols[place], near_deficits[place]
                n += 1
        stops[site] = n
        order = np.argsort(deficits[first:n])
        chosen, kept = symbols[first:n].copy(), deficits[first:n].copy()
        for i in range(n - first):
            symbols[first + i], deficits[first + i] = chosen[order[i]], kept[order[i]]


@compiled
def _first_above(deficits, low, high, limit):
    """The first place in the ascending deficits[low:high] with a value above `limit`."""
    while low < high:
        middle = (low + high) // 2
        if deficits[middle] > limit:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _count(places, lists, slack, slop, limit):
    """Tuples of a group within `slack` of its best one.

    Counting stops a little above `limit`. `slop` covers the rounding of partial
    sums: a partial tuple is given up only above ``slack + slop``, so that no tuple
    falls between two rounds.
    """
    deficits, starts, stops = lists
    k = places.size
    for j in range(k):
        if starts[places[j]] >= stops[places[j]]:
            return 0
    last_start, last_stop = starts[places[k - 1]], stops[places[k - 1]]
    last_base = deficits[last_start]
    if k == 1:
        return _first_above(deficits, last_start, last_stop, slack + last_base) - last_start
    index = np.empty(k, np.int64)
    sums = np.zeros(k)
    index[0] = -1
    total = 0
    level = 0
    while level >= 0:
        start, stop = starts[places[level]], stops[places[level]]
        base = deficits[start]
        if level == k - 2:
            # Two ascending lists: as the first goes up, the end of the second comes down.
            end = _first_above(deficits, last_start, last_stop, slack - sums[level] + last_base)
            for place in range(start, stop):
                room = slack - (sums[level] + (deficits[place] - base)) + last_base
                while end > last_start and deficits[end - 1] > room:
                    end -= 1
                if end == last_start or total > limit:
                    break
                total += end - last_start
            level -= 1
            if total > limit:
                break
            continue
        index[level] += 1
        place = start + index[level]
        gap = deficits[place] - base if place < stop else np.inf
        if place >= stop or sums[level] + gap > slack + slop:
            level -= 1
            continue
        sums[level + 1] = sums[level] + gap
        level += 1
        index[level] = -1
    return total


@compiled
def _count_all(tuples, n_groups, lists, slack, slop, limit):
    total = 0
    for g in range(n_groups):
        total += _count(tuples[g], lists, slack, slop, limit)
        if total > limit:
            break
    return total


@compiled
def _score_tuples(
    code, view, filters, places, inverses, others, symbols, lists, low, slack, goal,
    top_scores, top_ids, count,
):  # fmt: skip
    """Score the classes of a group's tuples with a deficit in (low, slack]; returns them counted.

    `goal` is (bound without the peeled symbols, share, margin): as the last score
    kept rises, the slack that is still needed falls.
    """
    bound, share, margin = goal
    whole, unit, scale = view[3], view[4], view[5]
    deficits, starts, stops = lists
    k = places.size
    index = np.empty(k, np.int64)
    sums = np.zeros(k)
    total_base = 0.0
    for j in range(k):
        if starts[places[j]] >= stops[places[j]]:
            return count, 0
        total_base += deficits[starts[places[j]]]
    batch = np.empty((k, BATCH), np.int64)
    ids, gaps = np.empty(BATCH, np.int64), np.empty(BATCH)
    index[0] = -1
    scored, n, level = 0, 0, 0
    while level >= 0:
        start, stop = starts[places[level]], stops[places[level]]
        base = deficits[start]
        if level == k - 1:
            begin = _first_above(deficits, start, stop, low - sums[level] + base)
            end = _first_above(deficits, begin, stop, slack - sums[level] + base)
            scored += end - begin
            while begin < end:
                taken = min(end - begin, BATCH - n)
                for j in range(taken):
                    for i in range(k - 1):
                        batch[i, n + j] = symbols[starts[places[i]] + index[i]]
                    batch[k - 1, n + j] = symbols[begin + j]
                    gaps[n + j] = total_base + sums[level] + (deficits[begin + j] - base)
                begin += taken
                n += taken
                if n == BATCH:
                    _resolve(code, places, inverses, batch, n, ids)
                    count = _score(
                        code, view, filters, ids, gaps, n, others, top_scores, top_ids, count
                    )
                    n = 0
                    if count == top_scores.size:
                        last = top_scores[count - 1]
                        margin = unit * (scale + whole - last)
                        slack = min(slack, (bound - last) * share + margin)
            level -= 1
            continue
        index[level] += 1
        place = start + index[level]
        gap = deficits[place] - base if place < stop else np.inf
        if place >= stop or sums[level] + gap > slack + margin:
            level -= 1
            continue
        sums[level + 1] = sums[level] + gap
        level += 1
        index[level] = -1
    _resolve(code, places, inverses, batch, n, ids)
    count = _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count)
    return count, scored


@compiled
def _peel(code, view, filters, site, symbol, gap, top_scores, top_ids, count):
    """Score every class that has a symbol at a site."""
    kind, n_classes, dimension, sizes, points, _, linear = code
    size, point = sizes[site], points[site]
    others = np.array([place for place in range(sizes.size) if place != site])
    ids, gaps = np.empty(BATCH, np.int64), np.full(BATCH, gap)
    scored, n = 0, 0
    first, stop, step = 0, n_classes, size
    if kind == LINEAR and point != LOWEST:  # the classes with these leading digits
        run = size ** (dimension - 1)
        first, stop, step = symbol * run, min((symbol + 1) * run, n_classes), 1
    for low in range(first, stop, step):
        if kind == SIMPLEX:
            x = low + (symbol - _symbol(kind, dimension, size, 1.0 / size, point, low)) % size
        elif kind == LINEAR:
            x = low
            if point == LOWEST:
                above = _linear_symbol(linear, site, low)
                x += _subtract(linear[0], linear[3][site], symbol, above)
        else:
            x = low + symbol
        ids[n] = x
        n += 1
        scored += x < n_classes
        if n == BATCH:
            count = _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count)
            n = 0
    return _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count), scored


@compiled
def _resolve_pairs(code, inverses, pairs, site, symbol, other, symbols, ids):
    """Classes with `symbol` at a site and each of `symbols` at another; dimension 2."""
    kind, _, _, sizes, points, reciprocals, linear = code
    size, inverse, reciprocal = sizes[other], pairs[site, other], reciprocals[other]
    if kind == TABLE:
        t, first = inverse // 2, inverse % 2 == 0
        for c in range(symbols.size):
            number = symbol * size + symbols[c]
            if not first:
                number = symbols[c] * sizes[site] + symbol
            ids[c] = inverses[t, 0, number]
    elif kind == LINEAR:
        t, place = inverse // 2, inverse % 2
        fixed = inverses[t, place, symbol]
        for c in range(symbols.size):
            ids[c] = _add(linear[0], linear[2], fixed, inverses[t, 1 - place, symbols[c]])
    elif kind == MIXED:
        first, least = sizes[site], symbol % size
        for c in range(symbols.size):
            rest = symbols[c] - least
            rest += size if rest < 0 else 0
            _, high = _divide(rest * inverse, size, reciprocal)
            ids[c] = symbol + first * high
    else:
        point = points[site]
        for c in range(symbols.size):
            rest = symbols[c] - symbol
            rest += size if rest < 0 else 0
            _, high = _divide(rest * inverse, size, reciprocal)
            _, low = _divide(high * (size - point) + symbol, size, reciprocal)
            ids[c] = low + high * size


@compiled
def _slice(
    code, view, filters, inverses, pairs, site, symbol, gap, before, peeled, best, best_deficits,
    symbols, lists, costs, top_scores, top_ids, count,
):  # fmt: skip
    """Score the classes with a symbol at a site that can still be among the best; dimension 2.

    A class with a peeled symbol at another site too is that pair of symbols: it is
    resolved here, or by the other symbol's slice (`before`: what was peeled already).
    In the others, the deficits left at the m-1 other sites sum to at most what τ allows,
    so one of them has at most its share: those symbols are taken from the lists.
    """
    n_classes, sizes = code[1], code[3]
    bound, unit, scale = view[3], view[4], view[5]
    deficits, starts, stops = lists
    m = sizes.size
    ids, gaps, others = np.empty(BATCH, np.int64), np.empty(BATCH), np.empty(m - 2, np.int64)
    room = bound - gap
    for other in range(m):
        if other != site:
            room -= best_deficits[other, peeled[other]]
    total, scored = 0, 0
    last = top_scores[count - 1]
    margin = unit * (scale + bound - last)
    left = room - last + margin
    for other in range(m):
        if other != site and left >= 0.0 and starts[other] < stops[other]:
            limit = deficits[starts[other]] + left / (m - 1) + margin
            total += _first_above(deficits, starts[other], stops[other], limit) - starts[other]
    if total * costs[0] > n_classes / sizes[site] * costs[1]:
        return _peel(code, view, filters, site, symbol, gap, top_scores, top_ids, count)
    for other in range(m):
        if other == site:
            continue
        n = 0
        for place in range(m):
            if place not in (site, other):
                others[n] = place
                n += 1
        n = peeled[other] if other < site else before[other]
        for step in range(2):
            if step == 0:
                begin, end = 0, n
            else:
                last = top_scores[count - 1]
                margin = unit * (scale + bound - last)
                left = room - last + margin
                if not left >= 0.0:
                    break
                begin = starts[other]
                limit = deficits[begin] + left / (m - 1) + margin if begin < stops[other] else 0.0
                end = _first_above(deficits, begin, stops[other], limit)
            while begin < end:
                taken = min(end - begin, BATCH)
                if step == 0:
                    chosen = best[other, begin : begin + taken]
                else:
                    chosen = symbols[begin : begin + taken]
                _resolve_pairs(code, inverses, pairs, site, symbol, other, chosen, ids)
                for c in range(taken):
                    far = best_deficits[other, begin + c] if step == 0 else deficits[begin + c]
                    gaps[c] = gap + far
                    scored += 0 <= ids[c] < n_classes
                count = _score(
                    code, view, filters, ids, gaps, taken, others, top_scores, top_ids, count
                )
                begin += taken
    return count, scored


@compiled
def _seed(code, view, groups, filters, best, best_deficits, per_site, top_scores, top_ids):
    """Score the classes of every tuple of sites with their best few symbols."""
    tuples, inverses, others = groups[:3]
    k = code[2]
    n = per_site**k
    symbols, ids = np.zeros((k, n), np.int64), np.empty(n, np.int64)
    gaps = np.empty(n)
    count = 0
    for t in range(tuples.shape[0]):
        for c in range(n):
            number, gap, known = c, 0.0, True
            for j in range(k):
                i = number % per_site
                number //= per_site
                symbols[j, c] = max(best[tuples[t, j], i], 0)
                known = known and best[tuples[t, j], i] >= 0
                gap += best_deficits[tuples[t, j], i]
            gaps[c] = gap if known else np.inf
        _resolve(code, tuples[t], inverses[t], symbols, n, ids)
        for c in range(n):
            if gaps[c] == np.inf:
                ids[c] = -1
        count = _score(code, view, filters, ids, gaps, n, others[t], top_scores, top_ids, count)
    return count, n * tuples.shape[0]


@compiled
def _histograms(offsets, best_deficits, near, width):
    """How many symbols of each site have a deficit up to each bin of this width; (m, BINS)."""
    _, deficits, stops = near
    counts = np.zeros((offsets.size, BINS))
    scale = 1.0 / width
    for site in range(offsets.size):
        for i in range(best_deficits.shape[1]):
            place = best_deficits[site, i] * scale
            if place < BINS:
                counts[site, int(place)] += 1.0
        for i in range(offsets[site], stops[site]):
            place = deficits[i] * scale
            if place < BINS:
                counts[site, int(place)] += 1.0
        for i in range(1, BINS):
            counts[site, i] += counts[site, i - 1]
    return counts


@compiled
def _within(cumulative, place, levels):
    """Symbols of a site up to a bin, without the `levels` peeled ones."""
    if place < 0.0:
        return 0.0
    return max(cumulative[int(min(place, BINS - 1.0))] - levels, 0.0)


@compiled
def _plan_slices(code, costs, cumulative, width, best_deficits, levels, peeled, missing):
    """About how much the slices of the symbols between `peeled` and `levels` cost.

    Scoring all their classes, a run each, costs no more than what comes second.
    """
    n_classes, sizes = code[1], code[3]
    m = sizes.size
    left = missing
    for site in range(m):
        left -= best_deficits[site, levels[site]]
    tuples, runs, widest = 0.0, 0.0, -np.inf
    for site in range(m):
        for level in range(peeled[site], levels[site]):
            runs += n_classes / sizes[site] * costs[1]
            room = left + best_deficits[site, levels[site]] - best_deficits[site, level]
            if not room >= 0.0:
                continue
            widest = max(widest, room)
            for other in range(m):
                if other != site:
                    far = best_deficits[other, levels[other]] + room / (m - 1)
                    tuples += _within(cumulative[other], far / width, levels[other])
    work = tuples * costs[0]
    if widest >= 0.0:  # the lists have to be sorted first
        for other in range(m):
            far = best_deficits[other, levels[other]] + widest / (m - 1)
            work += _within(cumulative[other], far / width, 0.0) * LISTED * costs[0]
    return work, runs


@compiled
def _plan_tuples(places, cumulative, shifts, levels, slack):
    """About how many tuples of a group's symbols lie within `slack` of the best; in bins.

    The histograms of all its sites but the last are convolved, each shifted to the
    first symbol that is left.
    """
    last = min(int(slack), BINS - 1)
    sums, more = np.zeros(BINS), np.zeros(BINS)
    sums[0] = 1.0
    for j in range(places.size - 1):
        site = places[j]
        more[:] = 0.0
        before = 0.0
        for b in range(last + 1):
            here = _within(cumulative[site], shifts[site] + b, levels[site])
            if here > before:
                for c in range(last + 1 - b):
                    more[b + c] += (here - before) * sums[c]
                before = here
        sums[:] = more
    site, total = places[-1], 0.0
    for b in range(last + 1):
        if sums[b] > 0.0:
            total += sums[b] * _within(cumulative[site], shifts[site] + slack - b, levels[site])
    return total


@compiled
def _plan_work(code, groups, costs, cumulative, width, best_deficits, levels, peeled, missing):
    """About how much a search with these peelings costs, in look-ups; whether they are runs.

    Tuples are counted from histograms of the sites' deficits, in bins of `width`.
    """
    n_classes, k, sizes = code[1], code[2], code[3]
    tuples, _, _, n_groups, share = groups[:5]
    m = sizes.size
    work, remaining = 0.0, missing
    shifts = np.empty(m)
    for site in range(m):
        shifts[site] = best_deficits[site, levels[site]] / width
        remaining -= best_deficits[site, levels[site]]
        if k != 2:
            work += (levels[site] - peeled[site]) * (n_classes / sizes[site]) * costs[1]
    if np.isnan(remaining):
        return np.inf, False
    by_runs = k != 2
    if k == 2:
        work, runs = _plan_slices(
            code, costs, cumulative, width, best_deficits, levels, peeled, missing
        )
        by_runs = runs <= work
        work = min(work, runs)
    if remaining < 0.0:
        return work, by_runs
    for g in range(n_groups):
        slack = remaining * share / width
        work += _plan_tuples(tuples[g], cumulative, shifts, levels, slack) * costs[0]
    return work, by_runs


@compiled
def _reach_of_slices(best_deficits, before, peeled, missing, margin, caps):
    """How far the lists of the sites have to reach for the slices of the new symbols."""
    m = caps.size
    for site in range(m):
        caps[site] = min(best_deficits[site, peeled[site]], HUGE)
    for site in range(m):
        if before[site] == peeled[site]:
            continue
        room = missing - best_deficits[site, before[site]]
        for other in range(m):
            if other != site:
                room -= best_deficits[other, peeled[other]]
        if room + margin >= 0.0:
            for other in range(m):
                if other != site:
                    cap = best_deficits[other, peeled[other]] + room / (m - 1) + 2.0 * margin
                    caps[other] = min(max(caps[other], cap), HUGE)


@compiled
def _peel_plan(code, groups, costs, offsets, best_deficits, near, peeled, most, missing, span):
    """How many of each site's best symbols to peel, the work that is left, and whether by runs.

    Peeling scores classes that have a symbol and takes the gap to the site's next
    symbol off the bound. Tried are: what is peeled already, one more of the sites with
    the widest gaps, of two, ..., of all, and two, three, ... more of every site.
    """
    m = offsets.size
    chosen, levels = peeled.copy(), peeled.copy()
    if not 0.0 < span < HUGE:
        return chosen, 0.0, False
    width = span / BINS * (1.0 + 1e-9)
    cumulative = _histograms(offsets, best_deficits, near, width)
    least, by_runs = _plan_work(
        code, groups, costs, cumulative, width, best_deficits, levels, peeled, missing
    )
    if most == 0 or least <= costs[5] * costs[0]:
        return chosen, least, by_runs
    gaps = np.zeros(m)
    for site in range(m):
        level = peeled[site]
        if level < most and best_deficits[site, level] <= HUGE:
            gaps[site] = best_deficits[site, level + 1] - best_deficits[site, level]
    order = np.argsort(-gaps)
    for step in range(m + most - 1):
        if step < m:
            levels[order[step]] = min(peeled[order[step]] + 1, most)
        else:
            for site in range(m):
                levels[site] = min(peeled[site] + step - m + 2, most)
        work, runs = _plan_work(
            code, groups, costs, cumulative, width, best_deficits, levels, peeled, missing
        )
        if work < least:
            least, chosen, by_runs = work, levels.copy(), runs
    return chosen, least, by_runs


@compiled
def _search_row(code, row, offsets, groups, costs, prior_max, filters, top_scores, top_ids):
    """Exact top-k of one row: (BOUND or SCAN, classes scored).

    With SCAN nothing is decided: the caller scans.
    """
    n_classes, k, sizes = code[1], code[2], code[3]
    tuples, inverses, others, n_groups, share, pairs, sliceable = groups
    n_tuples, m = tuples.shape[0], sizes.size
    scan_cost = float(n_classes) * m
    tuple_cost, peel_cost, trial, hopeless, hopeless_few, _ = costs
    most = 0
    if sliceable:
        most = MOST_SLICED if k == 2 else MOST_PEELED

    # Seed: the best few symbols of every k-tuple of sites.
    per_site = 1
    while (per_site + 1) ** k <= max(SEEDS, 4 * top_scores.size // n_tuples + 1):
        per_site += 1
    best, best_deficits = _best_symbols(row, offsets, sizes, max(per_site, most + 1))
    maxima = np.empty(m)
    scale, whole = abs(prior_max), prior_max
    for site in range(m):
        maxima[site] = row[offsets[site] + best[site, 0]]
        scale += abs(maxima[site])
        whole += maxima[site]
    if not scale < LARGEST:
        return SCAN, 0
    # Rounding: sums of the same terms in another order differ by less than this
    # times the terms, which for a class that matters are its maxima and its deficit.
    unit = 2e-15 * (m + 2)
    view = (row, offsets, maxima, whole, unit, scale)
    count, scored = _seed(
        code, view, groups, filters, best, best_deficits, per_site, top_scores, top_ids
    )
    last = top_scores[count - 1] if count == top_scores.size else -np.inf
    if last > -np.inf and whole - last > LARGEST:
        return SCAN, scored
    margin = unit * (scale + whole - last) if last > -np.inf else 0.0
    spent = scored * tuple_cost + 6.0 * row.size

    # The symbols that may matter: within the slack, and what peeling takes off a maximum.
    # With all of them among the few best there is nothing to plan.
    span = (whole - last) * share + 4.0 * margin
    planned = best_deficits[:, best.shape[1] - 1].min() > span
    if not planned:
        widest = 0.0
        for site in range(m):
            if best_deficits[site, most] <= HUGE:
                widest = max(widest, best_deficits[site, most])
        span = min(span + widest, HUGE)
    near = (np.empty(row.size, np.int64), np.empty(row.size), offsets.copy())
    symbols, deficits = np.empty(row.size, np.int64), np.empty(row.size)
    starts, stops = offsets.copy(), offsets.copy()
    lists, write = (deficits, starts, stops), (symbols, deficits, stops)
    caps = np.empty(m)
    _near(row, offsets, sizes, maxima, span, best, best_deficits, near)

    # Peel, where that is less work than the tuples it saves; as τ rises, plan again.
    peeled, bound, work = np.zeros(m, np.int64), whole, 0.0
    while not planned:
        levels, work, by_runs = _peel_plan(
            code, groups, costs, offsets, best_deficits, near, peeled, most, whole - last + margin,
            span,
        )  # fmt: skip
        if work > (hopeless if n_classes > FEW else hopeless_few) * scan_cost:
            return SCAN, scored
        # Else only a trial: rounds of tuples, given up early.
        if work > scan_cost or (levels == peeled).all():
            break
        before, peeled = peeled, levels
        bound = whole
        for site in range(m):
            starts[site] = offsets[site] + peeled[site]
            bound -= best_deficits[site, peeled[site]]
        if not by_runs:
            _reach_of_slices(best_deficits, before, peeled, whole - last, margin, caps)
            _sort_symbols(offsets, caps, best, best_deficits, near, write)
        for site in range(m):
            for j in range(before[site], peeled[site]):
                if not by_runs:
                    count, new = _slice(
                        code, view, filters, inverses, pairs, site, best[site, j],
                        best_deficits[site, j], before, peeled, best, best_deficits, symbols, lists,
                        costs, top_scores, top_ids, count,
                    )  # fmt: skip
                else:
                    count, new = _peel(
                        code, view, filters, site, best[site, j], best_deficits[site, j],
                        top_scores, top_ids, count,
                    )  # fmt: skip
                scored += new
                spent += new * (peel_cost if by_runs else tuple_cost)
        last = top_scores[count - 1]
        margin = unit * (scale + whole - last)
        span = min(span, (whole - last) * share + widest + 4.0 * margin)
        _narrow(offsets, span, near)

    # Pigeonhole, in rounds of growing slack, since τ rises meanwhile.
    limit = int(scan_cost / tuple_cost) + 1
    done, low, widest = 0, -np.inf, -1.0
    while True:
        if count == top_scores.size:
            last = top_scores[count - 1]
        slack = HUGE
        if last > -np.inf:
            if whole - last > LARGEST:
                return SCAN, scored
            margin = unit * (scale + whole - last)
            slack = (bound - last) * share + margin
        if slack < 0.0 or low >= slack:
            # With all finite tuples scored and a place left, it goes to a class at -inf.
            return (SCAN if last == -np.inf else BOUND), scored
        if widest < 0.0:
            widest = 0.0
            for site in range(m):
                caps[site] = min(slack + margin + best_deficits[site, peeled[site]], HUGE)
            _sort_symbols(offsets, caps, best, best_deficits, near, write)
            for site in range(m):
                if starts[site] < stops[site]:
                    widest = max(widest, k * deficits[stops[site] - 1])
        high = slack
        total = _count_all(tuples, n_groups, lists, high, margin, limit + done)
        affordable = total <= limit
        step = max(FIRST_ROUND, 2 * done)
        if total - done > 2 * step:
            # The slack at which a round has about `step` new tuples.
            below, above = max(low, 0.0), min(high, widest)
            for _ in range(8):
                middle = 0.5 * (below + above)
                within = _count_all(tuples, n_groups, lists, middle, margin, done + 2 * step)
                if within <= done + step:
                    below = middle
                else:
                    above = middle
            high = above  # type: ignore[assignment]
            total = _count_all(tuples, n_groups, lists, high, margin, limit + done)
        if not affordable and spent + (total - done) * tuple_cost > trial * scan_cost:
            return SCAN, scored
        for g in range(n_groups):
            count, new = _score_tuples(
                code, view, filters, tuples[g], inverses[g], others[g], symbols, lists,
                low, high, (bound, share, margin), top_scores, top_ids, count,
            )  # fmt: skip
            scored += new
            spent += new * tuple_cost
        done, low = total, high


@compiled
def search_rows(code, table, offsets, groups, costs, prior_max, filters, scores, ids, scored, how):
    """Search each row; `how` tells the rows that are left to the scan."""
    for r in range(table.shape[0]):
        scores[r, :] = -np.inf
        ids[r, :] = -1
        how[r], scored[r] = _search_row(
            code, table[r], offsets, groups, costs, prior_max, filters, scores[r], ids[r]
        )


@compiled
def _add_site(code, row, start, site, first, scores):
    """Add a site's log-probs to the scores of classes first, first+1, ...: runs, no gather."""
    kind, _, dimension, sizes, points, _, linear = code
    size = sizes[site]
    n = scores.size
    if kind == BITS:
        run = 1 << points[site]
        done = 0
        while done < n:
            x = first + done
            length = min(run - (x & (run - 1)), n - done)
            value = row[start + ((x >> points[site]) & 1)]
            for c in range(done, done + length):
                scores[c] += value
            done += length
        return
    done = 0
    if kind == TABLE:
        for c in range(n):
            scores[c] += row[start + linear[5][site, first + c]]
        return
    if kind == LINEAR:
        characteristic, base, _, widths, tables, _ = linear
        while done < n:
            low = (first + done) % base
            high = _linear_symbol(linear, site, first + done - low)
            length = min(base - low, n - done)
            for c in range(length):
                symbol = _add(characteristic, widths[site], high, tables[site, 0, low + c])
                scores[done + c] += row[start + symbol]
            done += length
        return
    while done < n:
        x = first + done
        symbol = _symbol(kind, dimension, size, 1.0 / size, points[site], x)
        length = min(size - symbol, n - done)
        if kind == SIMPLEX and dimension > 1:
            # The run also ends with the lowest digit.
            length = min(length, size - x % size)
        for c in range(length):
            scores[done + c] += row[start + symbol + c]
        done += length


@compiled
def scan_rows(code, table, offsets, filters, scores, ids):
    """Exact top-k of each row by scoring every class, in blocks."""
    n_classes = code[1]
    prior, allowed, mask = filters
    k = scores.shape[1]
    block = np.empty(min(BLOCK, n_classes))
    for r in range(table.shape[0]):
        row = table[r]
        count = 0
        for first in range(0, n_classes, BLOCK):
            n = min(BLOCK, n_classes - first)
            part = block[:n]
            part[:] = 0.0
            for site in range(offsets.size):
                _add_site(code, row, offsets[site], site, first, part)
            if prior.size:
                for c in range(n):
                    part[c] += prior[first + c]
            for c in range(n):
                # Ids ascend: a tie with the last one kept has the higher id.
                if count == k and not part[c] > scores[r, k - 1]:
                    continue
                if not _is_allowed(first + c, allowed, mask):
                    continue
                place = count if count < k else k - 1
                while place > 0 and part[c] > scores[r, place - 1]:
                    scores[r, place] = scores[r, place - 1]
                    ids[r, place] = ids[r, place - 1]
                    place -= 1
                scores[r, place] = part[c]
                ids[r, place] = first + c
                count = min(count + 1, k)
