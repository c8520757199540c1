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

from .codes import BITS, MIXED, SIMPLEX
from .compiled import compiled

__all__ = ["BOUND", "SCAN", "scan_rows", "search_rows"]

# With fewer classes than this a search that may not pay is not tried.
FEW = 3_000_000
# Bins of the histograms that plans are made by.
BINS = 64
# Classes scored at a time by the scan: their scores stay in the first cache.
BLOCK = 2048
# Candidates resolved and scored at a time by the search.
BATCH = 256
# Seeds per tuple of sites, and new tuples in the first round.
SEEDS, FIRST_ROUND = 36, 512
# How many of a site's best symbols may be peeled.
MOST_PEELED = 3
BOUND, SCAN = 0, 1
# More than any finite deficit; and what sums of deficits may reach without rounding to it.
HUGE = np.finfo(np.float64).max
LARGEST = 1e290


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
def _symbol(kind, dimension, size, point, x):
    """Symbol of class x at a site; numbers only, so that it inlines without a cost."""
    if kind == MIXED:
        symbol = x % size
    elif kind == BITS:
        symbol = (x >> point) & 1
    elif dimension == 2:
        high = x // size
        symbol = (x - high * size + high * point) % size
    elif dimension == 1:
        symbol = x
    else:
        symbol = _long_symbol(dimension, size, point, x)
    return symbol


@compiled
def _resolve(code, places, inverses, symbols, n, ids):
    """Classes of n tuples, symbols (k, n); any id outside 0..N-1 is no class."""
    kind, _, dimension, sizes, points = code
    if kind == BITS:
        for c in range(n):
            x = 0
            for j in range(dimension):
                x |= symbols[j, c] << points[places[j]]
            ids[c] = x
        return
    if kind == MIXED:
        for c in range(n):
            x = symbols[0, c]
            product = sizes[places[0]]
            for j in range(1, dimension):
                size = sizes[places[j]]
                x += product * ((symbols[j, c] - x) % size * inverses[j, 0] % size)
                product *= size
            ids[c] = x
        return
    size = sizes[0]
    for c in range(n):
        x = 0
        power = 1
        for j in range(dimension):
            digit = symbols[0, c] * inverses[j, 0] % size
            for i in range(1, dimension):
                digit = (digit + symbols[i, c] * inverses[j, i]) % size
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
    kind, n_classes, dimension, sizes, points = code
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
            symbol = _symbol(kind, dimension, sizes[site], points[site], x)
            gap += maxima[site] - row[offsets[site] + symbol]
            if gap > room:
                break
        if gap > room:
            continue
        score = 0.0
        for site in range(m):
            symbol = _symbol(kind, dimension, sizes[site], points[site], x)
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
    """The `count` best symbols of each site and their deficits below its maximum."""
    symbols = np.full((sizes.size, count), -1, np.int64)
    deficits = np.full((sizes.size, count), np.inf)
    for site in range(sizes.size):
        start = offsets[site]
        top = -np.inf
        for s in range(sizes[site]):
            top = max(top, row[start + s])
        found, worst = 0, np.inf
        for s in range(sizes[site]):
            deficit = top - row[start + s]
            if found == count and not deficit < worst:
                continue
            place = found if found < count else count - 1
            while place > 0 and deficit < deficits[site, place - 1]:
                deficits[site, place] = deficits[site, place - 1]
                symbols[site, place] = symbols[site, place - 1]
                place -= 1
            deficits[site, place] = deficit
            symbols[site, place] = s
            found = min(found + 1, count)
            worst = deficits[site, count - 1]
    return symbols, deficits


@compiled
def _sort_symbols(row, offsets, sizes, maxima, caps, best, peeled, symbols, deficits, lengths):
    """List each site's symbols with a deficit up to its cap, ascending, but the peeled ones."""
    for site in range(sizes.size):
        start, size, top = offsets[site], sizes[site], maxima[site]
        n = 0
        for s in range(size):
            deficit = top - row[start + s]
            if deficit <= caps[site]:
                left = True
                for i in range(peeled[site]):
                    left = left and best[site, i] != s
                if not left:
                    continue
                symbols[start + n] = s
                deficits[start + n] = deficit
                n += 1
        order = np.argsort(deficits[start : start + n])
        chosen = symbols[start : start + n].copy()
        kept = deficits[start : start + n].copy()
        for i in range(n):
            symbols[start + i] = chosen[order[i]]
            deficits[start + i] = kept[order[i]]
        lengths[site] = n


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
    deficits, lengths, offsets = lists
    k = places.size
    for j in range(k):
        if lengths[places[j]] == 0:
            return 0
    last_start = offsets[places[k - 1]]
    last_stop = offsets[places[k - 1]] + lengths[places[k - 1]]
    last_base = deficits[last_start]
    if k == 1:
        return _first_above(deficits, last_start, last_stop, slack + last_base) - last_start
    index = np.empty(k, np.int64)
    sums = np.zeros(k)
    index[0] = -1
    total = 0
    level = 0
    while level >= 0:
        start = offsets[places[level]]
        stop = start + lengths[places[level]]
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
    deficits, lengths, offsets = lists
    k = places.size
    index = np.empty(k, np.int64)
    sums = np.zeros(k)
    total_base = 0.0
    for j in range(k):
        if lengths[places[j]] == 0:
            return count, 0
        total_base += deficits[offsets[places[j]]]
    batch = np.empty((k, BATCH), np.int64)
    ids, gaps = np.empty(BATCH, np.int64), np.empty(BATCH)
    index[0] = -1
    scored, n, level = 0, 0, 0
    while level >= 0:
        start = offsets[places[level]]
        stop = start + lengths[places[level]]
        base = deficits[start]
        if level == k - 1:
            begin = _first_above(deficits, start, stop, low - sums[level] + base)
            end = _first_above(deficits, begin, stop, slack - sums[level] + base)
            scored += end - begin
            while begin < end:
                taken = min(end - begin, BATCH - n)
                for j in range(taken):
                    for i in range(k - 1):
                        batch[i, n + j] = symbols[offsets[places[i]] + index[i]]
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
    """Score every class that has a symbol at a site; MIXED and SIMPLEX."""
    kind, n_classes, dimension, sizes, points = code
    size, point = sizes[site], points[site]
    others = np.array([place for place in range(sizes.size) if place != site])
    ids, gaps = np.empty(BATCH, np.int64), np.full(BATCH, gap)
    scored, n = 0, 0
    for low in range(0, n_classes, size):
        x = low + symbol
        if kind == SIMPLEX:
            x = low + (symbol - _symbol(kind, dimension, size, point, low)) % size
        ids[n] = x
        n += 1
        scored += x < n_classes
        if n == BATCH:
            count = _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count)
            n = 0
    return _score(code, view, filters, ids, gaps, n, others, top_scores, top_ids, count), scored


@compiled
def _seed(code, view, groups, filters, best, best_deficits, per_site, top_scores, top_ids):
    """Score the classes of every tuple of sites with their best few symbols."""
    tuples, inverses, others, _, _ = groups
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
def _histograms(row, offsets, sizes, maxima, width):
    """How many symbols of each site have a deficit in each bin of this width; (m, BINS)."""
    counts = np.zeros((sizes.size, BINS))
    for site in range(sizes.size):
        top, start = maxima[site], offsets[site]
        for s in range(sizes[site]):
            place = (top - row[start + s]) / width
            if place < BINS:
                counts[site, int(place)] += 1.0
    return counts


@compiled
def _plan_work(code, groups, costs, histograms, width, best_deficits, levels, missing, margin):
    """About how much a search with these peelings costs, in look-ups of the scan.

    Tuples are counted by convolving the histograms of a group's sites, each without
    its peeled symbols and shifted by what peeling them takes from its maximum.
    """
    n_classes, k, sizes = code[1], code[2], code[3]
    tuples, _, _, n_groups, share = groups
    work, remaining = 0.0, missing
    for site in range(sizes.size):
        remaining -= best_deficits[site, levels[site]]
        work += levels[site] * (n_classes / sizes[site]) * costs[1]
    if np.isnan(remaining):
        return np.inf
    if remaining < -margin:
        return work
    slack = remaining * share + margin
    last = min(int(slack / width), BINS - 1)
    sums, more = np.zeros(BINS), np.zeros(BINS)
    for g in range(n_groups):
        for j in range(k):
            site = tuples[g, j]
            level = levels[site]
            shift = int(best_deficits[site, level] / width)
            more[:] = 0.0
            for b in range(min(last + 1, BINS - shift)):
                count = histograms[site, b + shift]
                if b == 0:  # peeled symbols may share the bin of the best one left
                    for i in range(level):
                        count -= int(best_deficits[site, i] / width) == shift
                if count > 0.0:
                    if j == 0:
                        more[b] = count
                    else:
                        for c in range(last + 1 - b):
                            more[b + c] += count * sums[c]
            sums[:] = more
        work += sums[: last + 1].sum() * costs[0]
    return work


@compiled
def _peel_plan(code, view, groups, costs, best_deficits, missing, margin):
    """How many of each site's best symbols to peel, and about what the search then costs.

    Peeling scores the N/q classes of a symbol and takes the gap to the site's next
    symbol off the bound. Tried are: none, one of the sites with the widest gaps, of
    two, ..., of all, and two or three of every site.
    """
    kind, n_classes, k, sizes = code[0], code[1], code[2], code[3]
    row, offsets, maxima = view[0], view[1], view[2]
    share = groups[4]
    m = sizes.size
    none = np.zeros(m, np.int64)
    most = 0 if kind == BITS or k == 1 else MOST_PEELED
    widest = 0.0
    for site in range(m):
        for level in range(most + 1):
            if best_deficits[site, level] <= HUGE:
                widest = max(widest, best_deficits[site, level])
    span = missing * share + margin + widest
    if not 0.0 < span <= HUGE:
        return none, 0.0
    width = span / BINS * (1.0 + 1e-9)
    histograms = _histograms(row, offsets, sizes, maxima, width)
    levels = none.copy()
    chosen = none
    least = _plan_work(
        code, groups, costs, histograms, width, best_deficits, levels, missing, margin
    )
    if most == 0 or least <= n_classes / sizes.max() * costs[1]:
        return none, least
    order = np.argsort(-best_deficits[:, 1])
    for step in range(m + most - 1):
        if step < m:
            levels[order[step]] = 1
        else:
            levels[:] = step - m + 2
        work = _plan_work(
            code, groups, costs, histograms, width, best_deficits, levels, missing, margin
        )
        if work < least:
            least, chosen = work, levels.copy()
    return chosen, least


@compiled
def _search_row(code, row, offsets, groups, costs, prior_max, filters, top_scores, top_ids):
    """Exact top-k of one row: (BOUND or SCAN, classes scored).

    With SCAN nothing is decided: the caller scans.
    """
    n_classes, k, sizes = code[1], code[2], code[3]
    tuples, inverses, others, n_groups, share = groups
    n_tuples, m = tuples.shape[0], sizes.size
    scan_cost = float(n_classes) * m

    # Seed: the best few symbols of every k-tuple of sites.
    per_site = 1
    while (per_site + 1) ** k <= max(SEEDS, 4 * top_scores.size // n_tuples + 1):
        per_site += 1
    best, best_deficits = _best_symbols(row, offsets, sizes, max(per_site, MOST_PEELED + 1))
    maxima = np.empty(m)
    scale, bound = abs(prior_max), prior_max
    for site in range(m):
        maxima[site] = row[offsets[site] + best[site, 0]] if best[site, 0] >= 0 else -np.inf
        scale += abs(maxima[site])
        bound += maxima[site]
    if not scale < LARGEST:
        return SCAN, 0
    # Rounding: sums of the same terms in another order differ by less than this
    # times the terms, which for a class that matters are its maxima and its deficit.
    unit = 2e-15 * (m + 2)
    whole = bound
    view = (row, offsets, maxima, whole, unit, scale)
    count, scored = _seed(
        code, view, groups, filters, best, best_deficits, per_site, top_scores, top_ids
    )
    last = top_scores[count - 1] if count == top_scores.size else -np.inf
    missing = bound - last
    if missing > LARGEST and last > -np.inf:
        return SCAN, scored
    margin = unit * (scale + missing) if last > -np.inf else 0.0
    tuple_cost, peel_cost, trial, hopeless, hopeless_few = costs
    spent = scored * tuple_cost + 6.0 * row.size

    # Peel, where that is less work than the tuples it saves.
    peeled, work = np.zeros(m, np.int64), 0.0
    # With all symbols within the slack among the few best there is nothing to plan.
    if not best_deficits[:, best.shape[1] - 1].min() > missing * share + margin:
        peeled, work = _peel_plan(code, view, groups, costs, best_deficits, missing, margin)
    if work > (hopeless if n_classes > FEW else hopeless_few) * scan_cost:
        return SCAN, scored
    if work > scan_cost:
        peeled[:] = 0  # only a trial: rounds of tuples, given up early
    for site in range(m):
        for j in range(peeled[site]):
            count, new = _peel(
                code, view, filters, site, best[site, j], best_deficits[site, j],
                top_scores, top_ids, count,
            )  # fmt: skip
            scored += new
            spent += new * peel_cost
        bound -= best_deficits[site, peeled[site]]

    # Pigeonhole: rounds of growing slack. The symbols' lists reach half of it at first:
    # by then the last score kept has risen, and short lists are cheap to sort.
    limit = int(scan_cost / tuple_cost) + 1
    caps = np.empty(m)
    symbols, deficits = np.empty(row.size, np.int64), np.empty(row.size)
    lengths = np.zeros(m, np.int64)
    lists = (deficits, lengths, offsets)
    done, low, reach, widest = 0, -np.inf, -np.inf, 0.0
    while True:
        if count == top_scores.size:
            last = top_scores[count - 1]
        missing, slack = bound - last, HUGE
        if last > -np.inf:
            margin = unit * (scale + whole - last)
            slack = missing * share + margin
        if slack < 0.0 or low >= slack:
            # With all finite tuples scored and a place left, it goes to a class at -inf.
            return (SCAN if last == -np.inf else BOUND), scored
        if low >= reach:
            reach = slack if low >= 0.0 or work == 0.0 or slack == HUGE else 0.5 * slack
            for site in range(m):
                caps[site] = min(reach + margin + best_deficits[site, peeled[site]], HUGE)
            _sort_symbols(
                row, offsets, sizes, maxima, caps, best, peeled, symbols, deficits, lengths
            )
            widest = 0.0
            for site in range(m):
                if lengths[site]:
                    widest = max(widest, k * deficits[offsets[site] + lengths[site] - 1])
        high = min(slack, reach)
        total = _count_all(tuples, n_groups, lists, high, margin, limit + done)
        affordable = high == slack and total <= limit
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
            high = min(above, high)
            total = _count_all(tuples, n_groups, lists, high, margin, limit + done)
        if not affordable and spent + (total - done) * tuple_cost > trial * scan_cost:
            if reach < slack:  # not known yet to be too much
                reach = low
                work = 0.0
                continue
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
    kind, _, dimension, sizes, points = code
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
    while done < n:
        x = first + done
        symbol = _symbol(kind, dimension, size, points[site], x)
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
