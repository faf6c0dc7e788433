r"""The compiled half of `assign`: one bag's labels by Newton's method on the dual.

For a bag with costs :math:`L` (n rows, C classes) and whole counts :math:`k` that sum to n,

.. math:: \min_y \sum_j L_{j y_j} \quad\text{with exactly } k_c \text{ labels of each class } c

is a transportation problem. Its linear relaxation has whole-number solutions, and its dual

.. math:: \max_u g(u) = \sum_c k_c u_c + \sum_j \min_c (L_{jc} - u_c)

has a single *price* :math:`u_c` for each class. Labels that meet the counts and cost, row by row,
no more than the best class at these prices, are optimal: the two values are then equal, and their
difference, the *gap*, proves it for any labels and prices, wherever they came from.

g is concave and piecewise linear with slope :math:`k - \text{held}(u)`, where held counts the rows
that prefer each class. :func:`solve` climbs it:

1. Prices come from the caller (the last epoch's), or from Newton on small samples of the rows.
2. **Newton.** Rows whose two best classes a, b differ by less than some width would change sides if
   the prices of a and b moved apart, so those rows are the edges of a graph over the classes whose
   Laplacian is -g'' at that width. A few linear solves leave a handful of rows in the wrong class.
3. **Active set.** Rows that would leave their class, or nearly, if prices moved twice as far as the
   next step would take them, are copied out; the others keep their labels.
4. **Repair.** Surplus rows move along shortest paths over the classes, those that tie all at once.
   Where costs are whole numbers so are the prices, and nothing is ever rounded.
5. **Certificate.** The gap over all rows decides. If it is too large, rows that were set aside
   would rather change: the active set is widened, and in the end holds every row.

The cost is a few passes over L, whatever n is, plus work on the active set, which grows with the
square root of n. Two classes need none of this: one selection among the differences of their costs
is the answer (:func:`solve_two`).

All of it is one file: numba's cache would not notice a change in another one. It is written in
plain loops over float64: numba compiles those many times faster than functions of numpy, and the
interpreter computes the same bits from them.
"""

from functools import partial

import numpy as np
from numba import njit

INF = np.inf
EPS = np.finfo(np.float64).eps
SOLVED, BAD_COUNTS, BAD_NUMBER, NO_CLASS, INFEASIBLE, UNCERTIFIED = range(6)

plain = partial(njit, nogil=True, error_model="numpy")
compiled = plain()
in_any_order = plain(fastmath={"reassoc"})  # for sums whose rounding does not matter
without_nan = plain(fastmath={"nnan", "nsz"})  # for several numbers at a time, none of them NaN


def entry(function):
    """Compile, and keep what was compiled for later processes, if there is a folder for it."""
    try:
        return plain(cache=True)(function)
    except RuntimeError:  # none is writable
        return compiled(function)


# -- What the costs look like ---------------------------------------------------------------------


@in_any_order
def row_sum(cost, j):
    """Return a sum that is finite only if all of the row is."""
    total = 0.0
    for c in range(cost.shape[1]):
        total += cost[j, c]
    return total


@without_nan
def row_ends(cost, j):
    """Return the least and the largest cost of a row."""
    low, high = INF, -INF
    for c in range(cost.shape[1]):
        low, high = min(low, cost[j, c]), max(high, cost[j, c])
    return low, high


@compiled
def survey(cost, counts):
    """Check every number once.

    Returns a status with its row and class, the largest magnitude, the largest shifted cost, and
    whether all costs are whole numbers.
    """
    n, C = cost.shape
    magnitude = span = 0.0
    whole, left = True, n
    for c in range(C):
        left = left - counts[c] if 0 <= counts[c] <= left else -1
        if left < 0:
            break
    if left != 0:
        return BAD_COUNTS, 0, 0, magnitude, span, whole
    for j in range(n):
        low, high, total = INF, -INF, 0.0
        if C < 16:  # too short a row for several numbers at a time
            for c in range(C):
                v = cost[j, c]
                low, high, total = min(low, v), max(high, v), total + v
        else:
            total = row_sum(cost, j)
            if -INF < total < INF:
                low, high = row_ends(cost, j)
        if not -INF < total < INF:  # something here is not finite, or all of it huge: look closer
            low, high, usable = INF, -INF, False
            for c in range(C):
                v = cost[j, c]
                if not v > -INF:
                    return BAD_NUMBER, j, c, magnitude, span, whole
                if v < INF:
                    low, high = min(low, v), max(high, v)
                    usable |= counts[c] > 0
            if not usable:
                return NO_CLASS, j, 0, magnitude, span, whole
        magnitude = max(magnitude, max(-low, high))
        span = max(span, high - low)
        if whole:
            for c in range(C):
                whole &= cost[j, c] == np.floor(cost[j, c])
    return SOLVED, 0, 0, magnitude, span, whole


@compiled
def shifted(cost, classes):
    """Return the columns of `classes`, each row minus its finite minimum: nothing cancels later."""
    n, C = len(cost), len(classes)
    result = np.empty((n, C))
    for j in range(n):
        low = INF
        for i in range(C):
            low = min(low, cost[j, classes[i]])
        for i in range(C):
            result[j, i] = cost[j, classes[i]] - low
    return result


@compiled
def objective(cost, labels):
    """Compute the total cost of the labels, by a compensated sum over short blocks."""
    n = len(labels)
    total = lost = 0.0
    for start in range(0, n, 64):
        block = -lost
        for j in range(start, min(start + 64, n)):
            block += cost[j, labels[j]]
        following = total + block
        lost = (following - total) - block
        total = following
    return total


@compiled
def ranked(values, n, rank):
    """Return the value that `rank` of the first n values precede; changes their order."""
    low, high, seed = 0, n, 1043618065
    while True:
        second = seed * 16807 % 2147483647  # at random: values in some order must not take n² steps
        third = second * 16807 % 2147483647
        a = values[low + (seed * (high - low) >> 31)]
        b = values[low + (second * (high - low) >> 31)]
        c = values[low + (third * (high - low) >> 31)]
        pivot, seed = max(min(a, b), min(max(a, b), c)), third * 16807 % 2147483647
        middle = low  # no branch depends on a value: half of them would be mispredicted
        for i in range(low, high):
            v = values[i]
            values[i] = values[middle]
            values[middle] = v
            middle += v < pivot
        if rank < middle:
            high = middle
            continue
        low = middle
        for i in range(middle, high):
            v = values[i]
            values[i] = values[low]
            values[low] = v
            low += v == pivot
        if rank < low:
            return pivot


# -- Two classes ----------------------------------------------------------------------------------


@compiled
def threshold(values, rank):
    """Return the value that `rank` others precede, from among those near it in a sample."""
    n = len(values)
    kept = np.empty(n)
    if n > 600:
        size = int(n ** (2 / 3))
        for i in range(size):
            kept[i] = values[i * n // size]
        place, margin = rank * size // n, int(1.5 * np.sqrt(size))
        low = ranked(kept, size, place - margin) if place > margin else -INF
        high = ranked(kept, size, place + margin) if place + margin < size else INF
        below = m = 0
        for j in range(n):
            v = values[j]
            kept[m] = v
            m += (low <= v) & (v <= high)
            below += v < low
        if below <= rank < below + m:
            return ranked(kept, m, rank - below)
    for j in range(n):
        kept[j] = values[j]
    return ranked(kept, n, rank)


@in_any_order
def gap_at(price, more, labels):
    """Compute the gap of labels of two classes: a sum of zeros, if they are optimal."""
    gap = 0.0
    for j in range(len(more)):
        gap += max(0.0, more[j] - price if labels[j] else price - more[j])
    return gap


@compiled
def divide(cost, second, labels):
    """Label the `second` rows to which class 1 adds least over class 0; ties go by their order.

    Returns a status, the price of class 1 above that of class 0, and the gap.
    """
    n = len(cost)
    more = np.empty(n)
    for j in range(n):
        more[j] = cost[j, 1] - cost[j, 0]
    price = threshold(more, max(second - 1, 0))
    ties = second
    for j in range(n):
        ties -= more[j] < price
    for j in range(n):
        tied = (more[j] == price) & (ties > 0)
        labels[j] = (more[j] < price) | tied
        ties -= tied
    if not -INF < price < INF:  # only forbidden classes are met there: take the next above
        too_many = price == INF and second > 0
        price = INF
        for j in range(n):
            price = min(price, INF if labels[j] else more[j])
        if too_many or price == -INF:
            return INFEASIBLE, 0.0, INF
        price = price if price < INF else 0.0
    return SOLVED, price, gap_at(price, more, labels)


@entry
def solve_two(cost, counts, offsets, prices, _warm, labels, first, last, where, values):
    """Solve bags of two classes as `solve_bags` does, but whatever the prices are."""
    for bag in range(first, last):
        start, stop = offsets[bag] - offsets[first], offsets[bag + 1] - offsets[first]
        rows, own = cost[start:stop], labels[offsets[bag] : offsets[bag + 1]]
        status, row, c, _, span, whole = survey(rows, counts[bag])
        whole &= span * 2 < 2.0**53
        gap = price = 0.0
        if status == SOLVED and span == INF:
            status, gap = UNCERTIFIED, INF
        if status == SOLVED and stop > start:
            status, price, gap = divide(rows, counts[bag, 1], own)
        most = counts[bag, 1] > counts[bag, 0]  # its price is 0, as for more classes
        prices[bag, 0] = -price if most else 0.0
        prices[bag, 1] = 0.0 if most else price
        where[bag, 0], where[bag, 1], where[bag, 2] = status, row, c
        values[bag, 0] = objective(rows, own) if status == SOLVED else INF
        values[bag, 1] = gap
        values[bag, 2] = 0.0 if whole else 8 * EPS * (stop - start) * span


# -- Newton's method on the dual ------------------------------------------------------------------


@compiled
def scan(cost, prices, labels, gap, held):
    """Label each row by its best class, and store its lead over the second best as its gap.

    Returns the sum of the best reduced costs.
    """
    n, C = cost.shape
    for c in range(C):
        held[c] = 0
    total = 0.0
    for j in range(n):
        best, second, own = INF, INF, 0
        for c in range(C):
            v = cost[j, c] - prices[c]
            second = min(second, max(best, v))
            own = c if v < best else own
            best = min(best, v)
        labels[j] = own
        gap[j] = second - best
        held[own] += 1
        total += best
    return total


@compiled
def surplus(held, targets):
    """Count the rows that are too many in their class."""
    total = 0
    for c in range(len(targets)):
        total += max(0, held[c] - targets[c])
    return total


@compiled
def gap_at_rank(gap, rank):
    """Estimate from a sample the gap that about `rank` rows, or a few more, do not exceed."""
    n = len(gap)
    size = min(n, 128 + n // 256)
    sample, apart = np.empty(size), n / size
    for i in range(size):
        sample[i] = gap[int(i * apart)]
    # Two more: at optimal prices the gaps of a few rows are rounding errors.
    return ranked(sample, size, min(int(rank * size / n) + 2, size - 1))


@compiled
def edges_within(width, cost, prices, labels, gap):
    """Return rows whose lead is at most `width` as edges (best class, second best class)."""
    n, C = cost.shape
    edges, m = np.empty((n, 2), np.int64), 0
    for j in range(n):
        edges[m, 0] = j
        m += gap[j] <= width
    for i in range(m):
        j = edges[i, 0]
        own = labels[j]
        second, runner_up = INF, 0
        for c in range(C):
            v = cost[j, c] - prices[c] + (INF if c == own else 0.0)  # without a branch
            runner_up = c if v < second else runner_up
            second = min(second, v)
        edges[i, 0], edges[i, 1] = own, runner_up
    return edges[:m]


@compiled
def solve_laplacian(edges, targets, held):
    """Solve (Laplacian of the edges + a weak complete graph) x = targets - held.

    By conjugate gradients, to a few per cent.
    """
    C = len(targets)
    x, p, q, residual, diagonal = np.empty(C), np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    for c in range(C):
        x[c] = p[c] = 0.0
        residual[c], diagonal[c] = targets[c] - held[c], 0.5
    for i in range(len(edges)):
        diagonal[edges[i, 0]] += 1.0
        diagonal[edges[i, 1]] += 1.0
    first = previous = 0.0
    for _ in range(min(C, 30) + 1):
        norm = 0.0
        for c in range(C):
            norm += residual[c] * residual[c] / diagonal[c]
        first = max(first, norm)
        if norm <= 1e-3 * first:
            break
        total = 0.0
        for c in range(C):
            p[c] = residual[c] / diagonal[c] + (norm / previous * p[c] if previous else 0.0)
            total += p[c]
        for c in range(C):
            q[c] = 0.5 * (p[c] - total / C)
        for i in range(len(edges)):
            a, b = edges[i, 0], edges[i, 1]
            flow = p[a] - p[b]
            q[a] += flow
            q[b] -= flow
        curvature = 0.0
        for c in range(C):
            curvature += p[c] * q[c]
        for c in range(C):
            x[c] += norm / curvature * p[c]
            residual[c] -= norm / curvature * q[c]
        previous = norm
    return x


@compiled
def newton_step(cost, targets, prices, labels, gap, held, excess, step):
    """Compute how far to move the prices; returns the width at which (0 where rows tie)."""
    C = len(targets)
    width = gap_at_rank(gap, excess + C)
    for c in range(C):
        step[c] = 0.0
    if 0.0 < width < INF:  # or else ties or lone classes: no price tells these rows apart
        direction = solve_laplacian(edges_within(width, cost, prices, labels, gap), targets, held)
        low = high = direction[0]
        for c in range(C):
            low, high = min(low, direction[c]), max(high, direction[c])
        for c in range(C):
            step[c] = 2.0 * width * direction[c] * min(1.0, 25.0 / (high - low))
    return width


@compiled
def newton(cost, targets, prices, labels, gap, held, whole, enough, steps):
    """Move the prices until at most `enough` rows are in the wrong class; returns how many are.

    Labels, gap and held are left as `scan` makes them at the final prices. With whole-number costs
    the prices stay whole.
    """
    C = len(prices)
    best, good, step = -INF, np.empty(C), np.empty(C)
    while True:
        dual = scan(cost, prices, labels, gap, held)
        for c in range(C):
            dual += targets[c] * prices[c]
        excess = surplus(held, targets)
        if excess <= enough or dual == best or not (steps > 0 or dual < best):
            return excess
        if dual < best:  # too far: shrink the step, or take it back
            for c in range(C):
                prices[c] = good[c]
                step[c] *= 0.35 if steps > 0 else 0.0
        else:
            best = dual
            newton_step(cost, targets, prices, labels, gap, held, excess, step)
        for c in range(C):
            good[c] = prices[c]
            prices[c] += step[c]
            prices[c] = np.rint(prices[c]) if whole else prices[c]
        steps = max(steps - 1, 0)


# -- Repair: successive shortest paths over the classes -------------------------------------------


@compiled
def enter(j, own, cost, exchange, first, following):
    """Put row j into the list of class `own`, and update what moving a row elsewhere costs."""
    following[j] = first[own]
    first[own] = j
    paid = cost[j, own]
    for c in range(len(first)):
        exchange[own, c] = min(exchange[own, c], cost[j, c] - paid)


@without_nan
def lowest(values):
    """Return the place of the least value."""
    least = INF
    for c in range(len(values)):
        least = min(least, values[c])
    place = 0
    while values[place] > least:
        place += 1
    return place


@compiled
def nearest_deficit(start, exchange, prices, held, counts, distance, frontier, parent):
    """Find the class with too few rows that is nearest to `start` (Dijkstra; -1: none)."""
    C = len(counts)
    for c in range(C):
        distance[c] = frontier[c] = INF
    distance[start] = frontier[start] = 0.0
    while True:
        a = lowest(frontier)
        reached = frontier[a]
        if reached == INF:
            return -1
        if held[a] < counts[a]:
            return a
        frontier[a] = INF
        for b in range(C):
            d = reached + max(0.0, exchange[a, b] + prices[a] - prices[b])
            nearer = d < distance[b]
            distance[b] = d if nearer else distance[b]
            frontier[b] = d if nearer else frontier[b]
            parent[b] = a if nearer else parent[b]


@compiled
def count_cheapest(cost, exchange, first, following, a, b):
    """Count the rows of class a that can move to class b at the least cost: several if they tie."""
    tied, j = 0, first[a]
    while j >= 0:
        tied += cost[j, b] - cost[j, a] == exchange[a, b]
        j = following[j]
    return tied


@compiled
def move_cheapest(cost, labels, exchange, first, following, a, b, amount):
    """Move `amount` rows of class a that cost least to class b, and renew the exchange costs."""
    least, j = exchange[a, b], first[a]
    first[a] = -1
    for c in range(len(first)):
        exchange[a, c] = INF
    while j >= 0:
        upcoming = following[j]
        if amount > 0 and cost[j, b] - cost[j, a] == least:
            amount -= 1
            labels[j] = b
        enter(j, labels[j], cost, exchange, first, following)
        j = upcoming


@compiled
def repair(cost, counts, prices, labels, held):
    """Move rows until every class holds its count, always on a cheapest path; False: impossible.

    exchange[a, b] is the least that moving a row from class a to class b adds to the objective.
    The rows of each class form a list: `first` of the class, then `following` each row.
    """
    n, C = cost.shape
    exchange, first, following = np.empty((C, C)), np.empty(C, np.int64), np.empty(n, np.int64)
    for a in range(C):
        first[a] = -1
        for b in range(C):
            exchange[a, b] = INF
    for j in range(n):
        enter(j, labels[j], cost, exchange, first, following)
    distance, frontier, parent = np.empty(C), np.empty(C), np.empty(C, np.int64)
    for start in range(C):
        while held[start] > counts[start]:
            end = nearest_deficit(start, exchange, prices, held, counts, distance, frontier, parent)
            if end < 0:
                return False
            farthest = distance[end]
            for c in range(C):
                prices[c] += min(distance[c], farthest)
            amount = min(held[start] - counts[start], counts[end] - held[end])
            b = end
            while b != start and amount > 1:
                tied = count_cheapest(cost, exchange, first, following, parent[b], b)
                amount, b = min(amount, tied), parent[b]
            b = end
            while b != start:
                move_cheapest(cost, labels, exchange, first, following, parent[b], b, amount)
                b = parent[b]
            held[start] -= amount
            held[end] += amount
    return True


# -- One bag, and many ----------------------------------------------------------------------------


@compiled
def duality_gap(cost, prices, labels):
    """Compute what labels cost above the best class at these prices, and the size of rounding.

    Summed row by row over differences of costs and differences of prices: neither large costs nor
    large prices can hide a gap, and a gap of 0 is exact.
    """
    n, C = cost.shape
    gap = total = 0.0
    for j in range(n):
        paid, price = cost[j, labels[j]], prices[labels[j]]
        best = 0.0
        for c in range(C):
            best = min(best, (cost[j, c] - paid) - (prices[c] - price))
        gap -= best
        total += abs(paid) + abs(price)
    return gap, 4 * EPS * total


@compiled
def prices_from(labels, cost, prices):
    """Compute prices from the labels: shortest paths (Bellman–Ford) over what moving rows costs.

    Where hardly any row may have either of two classes, Newton's steps can carry their prices so
    far apart that differences are rounded away. The labels are right all the same.
    """
    n, C = cost.shape
    exchange = np.empty((C, C))
    for a in range(C):
        prices[a] = 0.0
        for b in range(C):
            exchange[a, b] = INF
    for j in range(n):
        own = labels[j]
        for c in range(C):
            exchange[own, c] = min(exchange[own, c], cost[j, c] - cost[j, own])
    for _ in range(C):
        for a in range(C):
            for b in range(C):
                prices[b] = min(prices[b], prices[a] + exchange[a, b])


@compiled
def few(C):
    """Return how many rows are moved one by one as fast as by one more Newton step."""
    return min(2 * C, 20 + C // 2)


@compiled
def may_change(cost, prices, labels, gap, step, reach, margin):
    """Return rows that would leave their class, or come within `margin` of it, after steps."""
    n, C = cost.shape
    low = high = reach * step[0]
    for c in range(C):
        low, high = min(low, reach * step[c]), max(high, reach * step[c])
    rows, m, near = np.empty(n, np.int64), 0, 0
    for j in range(n):
        rows[m] = j
        m += gap[j] <= high - low + margin
    for i in range(m):
        j = rows[i]
        own = labels[j]
        limit = cost[j, own] - prices[own] - reach * step[own] + margin
        close = gap[j] <= margin
        for c in range(C):
            close |= (c != own) & (cost[j, c] - prices[c] - reach * step[c] <= limit)
        rows[near] = j
        near += close
    return rows[:near]


@compiled
def solve_active(cost, rows, counts, prices, labels, held, whole):
    """Solve for `rows` while all others keep their labels; False where that cannot be done."""
    m, C = len(rows), len(counts)
    active, needed = np.empty((m, C)), np.empty(C, np.int64)
    for c in range(C):
        needed[c] = counts[c] - held[c]
    for i in range(m):
        j = rows[i]
        needed[labels[j]] += 1
        for c in range(C):
            active[i, c] = cost[j, c]
    for c in range(C):
        if needed[c] < 0:
            return False
    own, gap = np.empty(m, np.int64), np.empty(m)
    newton(active, needed, prices, own, gap, held, whole, few(C), 8)
    if not repair(active, needed, prices, own, held):
        return False
    for i in range(m):
        labels[rows[i]] = own[i]
    return True


@compiled
def solve_from(prices, cost, counts, labels, whole, tolerance, trusted):
    """Solve one bag in place, starting from prices that are near; return status and gap.

    Prices that turn out to be far off are given up at once, unless they are `trusted`.
    """
    n, C = cost.shape
    largest = 0
    for c in range(C):
        prices[c] = np.rint(prices[c]) if whole else prices[c]
        largest = c if counts[c] > counts[largest] else largest
    gap, held, step = np.empty(n), np.empty(C, np.int64), np.empty(C)
    reach = 1.0
    while True:
        excess = newton(cost, counts, prices, labels, gap, held, whole, max(n // 32, few(C)), 8)
        if excess > n // 8 and n > 1000 and not trusted:
            return UNCERTIFIED, INF
        everything = n <= 10 * (excess + C) or reach > 50
        if excess == 0:
            solved = True
        elif everything:
            solved = repair(cost, counts, prices, labels, held)
        else:
            width = newton_step(cost, counts, prices, labels, gap, held, excess, step)
            rows = may_change(cost, prices, labels, gap, step, 2 * reach, reach * width)
            solved = solve_active(cost, rows, counts, prices, labels, held, whole)
        if solved:
            small = prices[largest]  # where most rows are: rounds best
            for c in range(C):
                prices[c] -= small
            missing, rounding = duality_gap(cost, prices, labels)
            if everything and missing > tolerance:
                prices_from(labels, cost, prices)
                missing, rounding = duality_gap(cost, prices, labels)
            if missing <= min(rounding, tolerance) or everything:
                return SOLVED if missing <= tolerance else UNCERTIFIED, missing
        elif everything:
            return INFEASIBLE, INF
        reach *= 3.0


@compiled
def solve(cost, counts, prices, labels, whole, tolerance, warm):
    """Solve from the caller's prices, or else from those of larger and larger samples of rows.

    However the costs are distributed, optimal prices of a sample of s rows put all but
    O(n sqrt(C / s)) of the n rows into the right class. Newton need come no nearer than that; where
    it stalls, the sample is solved exactly.
    """
    n, C = cost.shape
    if warm:
        status, gap = solve_from(prices, cost, counts, labels, whole, tolerance, False)
        if status == SOLVED:
            return status, gap
    for c in range(C):
        prices[c] = 0.0
    level = 0
    while n >> 3 * (level + 1) >= max(128, 4 * C):
        level += 1
    for fraction in range(level, 0, -1):
        size = n >> 3 * fraction
        sample, targets = np.empty((size, C)), np.empty(C, np.int64)
        for i in range(size):
            scramble = (i * 40503 % 65521) % (n // size)  # so that no order of the rows is in step
            j = i * n // size + scramble
            for c in range(C):
                sample[i, c] = cost[j, c]
        total = before = 0
        for c in range(C):
            total += counts[c]
            share = int(np.rint(total * (size / n)))
            targets[c], before = share - before, share
        own, gaps, held = np.empty(size, np.int64), np.empty(size), np.empty(C, np.int64)
        enough = max(few(C), int(np.sqrt(size) / 2))
        if newton(sample, targets, prices, own, gaps, held, whole, enough, 8) > enough:
            solve_from(prices, sample, targets, own, whole, tolerance, True)
    return solve_from(prices, cost, counts, labels, whole, tolerance, True)


@entry
def solve_bags(cost, counts, offsets, prices, warm, labels, first, last, where, values):
    """Solve bags first..last-1 in place; `cost` has their rows alone.

    Each gets (status, row, class) in `where` and (objective, gap, tolerance) in `values`.
    """
    for bag in range(first, last):
        start, stop = offsets[bag] - offsets[first], offsets[bag + 1] - offsets[first]
        rows, own = cost[start:stop], labels[offsets[bag] : offsets[bag + 1]]
        n, C = rows.shape
        status, row, c, magnitude, span, whole = survey(rows, counts[bag])
        whole &= span * C < 2.0**53  # below it no sum of costs along a path is rounded
        tolerance = 0.0 if whole else 8 * EPS * n * span
        gap = 0.0
        if status == SOLVED and span == INF:
            status, gap = UNCERTIFIED, INF
        if status == SOLVED and n > 0:
            present = 0
            for i in range(C):
                present += counts[bag, i] > 0
            classes, needed = np.empty(present, np.int64), np.empty(present, np.int64)
            part = np.empty(present)
            i, low, high = 0, INF, -INF
            for k in range(C):
                if counts[bag, k] > 0:
                    classes[i], needed[i], part[i] = k, counts[bag, k], prices[bag, k]
                    low, high = min(low, part[i]), max(high, part[i])
                    i += 1
            near = warm and high - low <= 4 * C * span  # no optimal prices spread so far
            exact = rows if present == C and magnitude <= 2 * span else shifted(rows, classes)
            status, gap = solve(exact, needed, part, own, whole, tolerance, near)
            low = INF
            for i in range(present):
                low = min(low, part[i])
            for k in range(C):
                prices[bag, k] = low - 2 * span  # too low for any row to want an absent class
            for i in range(present):
                prices[bag, classes[i]] = part[i]
            for j in range(n):
                own[j] = classes[own[j]]
        where[bag, 0], where[bag, 1], where[bag, 2] = status, row, c
        values[bag, 0] = objective(rows, own) if status == SOLVED else INF
        values[bag, 1], values[bag, 2] = gap, tolerance
