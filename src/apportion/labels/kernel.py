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
square root of n. All of it is one file: numba's cache would not notice a change in another one.
"""

import numpy as np
from numba import njit

INF = np.inf
EPS = np.finfo(np.float64).eps
SOLVED, BAD_COUNTS, BAD_NUMBER, NO_CLASS, INFEASIBLE, UNCERTIFIED = range(6)

compiled = njit(cache=True, nogil=True, error_model="numpy")


# -- What the costs look like ---------------------------------------------------------------------


@compiled
def survey(cost, counts):
    """Check every number once.

    Returns a status with its row and class, the largest magnitude, the largest shifted cost, and
    whether all costs are whole numbers.
    """
    n, C = cost.shape
    magnitude = span = 0.0
    whole = True
    if counts.min() < 0 or counts.max() > n or counts.sum() != n:
        return BAD_COUNTS, 0, 0, magnitude, span, whole
    for j in range(n):
        low, high, total = INF, -INF, 0.0
        for c in range(C):
            v = np.float64(cost[j, c])
            low, high, total = min(low, v), max(high, v), total + v
        if not -INF < total < INF:  # something here is not finite: look closer
            high, usable = -INF, False
            for c in range(C):
                v = np.float64(cost[j, c])
                if not v > -INF:
                    return BAD_NUMBER, j, c, magnitude, span, whole
                if v < INF:
                    high = max(high, v)
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
        for c in classes:
            low = min(low, np.float64(cost[j, c]))
        for i in range(C):
            result[j, i] = cost[j, classes[i]] - low
    return result


# -- Newton's method on the dual ------------------------------------------------------------------


@compiled
def scan(cost, prices, labels, gap, held):
    """Label each row by its best class, and store its lead over the second best as its gap.

    Returns the sum of the best reduced costs.
    """
    n, C = cost.shape
    held[:] = 0
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
    total = 0.0
    for c in range(len(targets)):
        total += max(0.0, held[c] - targets[c])
    return total


@compiled
def gap_at_rank(gap, rank):
    """Estimate from a sample the gap that about `rank` rows, or a few more, do not exceed."""
    n = len(gap)
    size = min(n, 128 + n // 256)
    sample = np.empty(size)
    for i in range(size):
        sample[i] = gap[i * n // size]
    # Two more: at optimal prices the gaps of a few rows are rounding errors.
    place = min(int(rank * size / n) + 2, size - 1)
    return np.partition(sample, place)[place]


@compiled
def edges_within(width, cost, prices, labels, gap):
    """Return rows whose lead is at most `width` as edges (best class, second best class)."""
    n, C = cost.shape
    edges, m = np.empty((n, 2), np.int64), 0
    for j in range(n):
        if gap[j] <= width:
            second, runner_up = INF, 0
            for c in range(C):
                v = INF if c == labels[j] else cost[j, c] - prices[c]
                runner_up = c if v < second else runner_up
                second = min(second, v)
            edges[m, 0], edges[m, 1] = labels[j], runner_up
            m += 1
    return edges[:m]


@compiled
def solve_laplacian(edges, right):
    """Solve (Laplacian of the edges + a weak complete graph) x = right by conjugate gradients."""
    C = len(right)
    diagonal = np.full(C, 0.5)
    for i in range(len(edges)):
        diagonal[edges[i, 0]] += 1.0
        diagonal[edges[i, 1]] += 1.0
    x, p, q, residual = np.zeros(C), np.zeros(C), np.empty(C), right.astype(np.float64)
    first = previous = 0.0
    for _ in range(min(C, 30) + 1):
        norm = 0.0
        for c in range(C):
            norm += residual[c] * residual[c] / diagonal[c]
        first = max(first, norm)
        if norm <= 1e-3 * first and norm < first:
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
def newton_step(cost, targets, prices, labels, gap, held, excess):
    """Return how far to move the prices, and at which width that was found (0 where rows tie)."""
    width = gap_at_rank(gap, excess + len(targets))
    if not 0.0 < width < INF:  # ties or lone classes: no price tells these rows apart
        return np.zeros(len(targets)), width
    edges = edges_within(width, cost, prices, labels, gap)
    step = 2.0 * width * solve_laplacian(edges, targets - held)
    return step * min(1.0, 50.0 * width / (step.max() - step.min())), width


@compiled
def newton(cost, targets, prices, labels, gap, held, whole, enough, steps):
    """Move the prices until at most `enough` rows are in the wrong class; returns how many are.

    Labels, gap and held are left as `scan` makes them at the final prices. With whole-number costs
    the prices stay whole.
    """
    best, good = -INF, prices.copy()
    while True:
        dual = scan(cost, prices, labels, gap, held) + np.sum(targets * prices)
        excess = surplus(held, targets)
        if excess <= enough or dual == best:
            return excess
        if steps == 0:
            if dual < best:
                prices[:] = good
                scan(cost, prices, labels, gap, held)
            return surplus(held, targets)
        steps -= 1
        if dual < best:  # too far
            prices[:] = good + 0.35 * (prices - good)
        else:
            best, good[:] = dual, prices
            prices += newton_step(cost, targets, prices, labels, gap, held, excess)[0]
        if whole:
            np.rint(prices, prices)


# -- Repair: successive shortest paths over the classes -------------------------------------------


@compiled
def enter(j, own, cost, exchange, first, following):
    """Put row j into the list of class `own`, and update what moving a row elsewhere costs."""
    following[j] = first[own]
    first[own] = j
    paid = np.float64(cost[j, own])
    for c in range(len(first)):
        exchange[own, c] = min(exchange[own, c], cost[j, c] - paid)


@compiled
def nearest_deficit(exchange, prices, held, counts, distance, parent):
    """Find the class with too few rows nearest to those with too many (Dijkstra; -1: none)."""
    C = len(counts)
    frontier = np.empty(C)
    for c in range(C):
        distance[c] = frontier[c] = 0.0 if held[c] > counts[c] else INF
        parent[c] = -1
    while True:
        a, reached = -1, INF
        for c in range(C):
            a = c if frontier[c] < reached else a
            reached = min(reached, frontier[c])
        if a < 0 or held[a] < counts[a]:
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
        tied += cost[j, b] - np.float64(cost[j, a]) == exchange[a, b]
        j = following[j]
    return tied


@compiled
def move_cheapest(cost, labels, exchange, first, following, a, b, amount):
    """Move `amount` rows of class a that cost least to class b, and renew the exchange costs."""
    least, j = exchange[a, b], first[a]
    exchange[a], first[a] = INF, -1
    while j >= 0:
        upcoming = following[j]
        if amount > 0 and cost[j, b] - np.float64(cost[j, a]) == least:
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
    exchange = np.full((C, C), INF)
    first, following = np.full(C, -1), np.empty(n, np.int64)
    for j in range(n):
        enter(j, labels[j], cost, exchange, first, following)
    distance, parent = np.empty(C), np.empty(C, np.int64)
    while surplus(held, counts) > 0:
        end = nearest_deficit(exchange, prices, held, counts, distance, parent)
        if end < 0:
            return False
        for c in range(C):
            prices[c] += min(distance[c], distance[end])
        start = end
        while parent[start] >= 0:
            start = parent[start]
        amount = min(held[start] - counts[start], counts[end] - held[end])
        b = end
        while b != start and amount > 1:
            amount = min(amount, count_cheapest(cost, exchange, first, following, parent[b], b))
            b = parent[b]
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
        paid, price = np.float64(cost[j, labels[j]]), prices[labels[j]]
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
    exchange = np.full((C, C), INF)
    for j in range(n):
        own = labels[j]
        for c in range(C):
            exchange[own, c] = min(exchange[own, c], cost[j, c] - np.float64(cost[j, own]))
    prices[:] = 0.0
    for _ in range(C):
        for a in range(C):
            for b in range(C):
                prices[b] = min(prices[b], prices[a] + exchange[a, b])


@compiled
def few(C):
    """Return how many rows are moved one by one as fast as by one more Newton step."""
    return min(2 * C, 20 + C // 2)


@compiled
def may_change(cost, prices, labels, gap, step, margin):
    """Return rows that would leave their class, or come within `margin` of it, after a step."""
    n, C = cost.shape
    rows, m = np.empty(n, np.int64), 0
    farthest = step.max() - step.min() + margin
    for j in range(n):
        if gap[j] <= farthest:
            own = labels[j]
            limit = cost[j, own] - prices[own] - step[own] + margin
            near = gap[j] <= margin
            for c in range(C):
                near |= (c != own) & (cost[j, c] - prices[c] - step[c] <= limit)
            rows[m] = j
            m += near
    return rows[:m]


@compiled
def solve_active(cost, rows, counts, prices, labels, held, whole):
    """Solve for `rows` while all others keep their labels; False where that cannot be done."""
    m, C = len(rows), len(counts)
    active = np.empty((m, C))
    needed = counts - held
    for i in range(m):
        j = rows[i]
        needed[labels[j]] += 1
        for c in range(C):
            active[i, c] = cost[j, c]
    if needed.min() < 0:
        return False
    own, gap = np.empty(m, np.int64), np.empty(m)
    newton(active, needed, prices, own, gap, held, whole, few(C), 8)
    if not repair(active, needed, prices, own, held):
        return False
    labels[rows] = own
    return True


@compiled
def solve_from(prices, cost, counts, labels, whole, tolerance, trusted):
    """Solve one bag in place, starting from prices that are near; return status and gap.

    Prices that turn out to be far off are given up at once, unless they are `trusted`.
    """
    n, C = cost.shape
    if whole:
        np.rint(prices, prices)
    gap, held = np.empty(n), np.empty(C, np.int64)
    reach = 1.0
    while True:
        excess = newton(cost, counts, prices, labels, gap, held, whole, max(n // 32, few(C)), 8)
        if excess > n // 8 and n > 1000 and not trusted:
            return UNCERTIFIED, INF
        everything = n <= 10 * (excess + C) or reach > 50
        if everything:
            solved = repair(cost, counts, prices, labels, held)
        else:
            step, width = newton_step(cost, counts, prices, labels, gap, held, excess)
            rows = may_change(cost, prices, labels, gap, 2 * reach * step, reach * width)
            solved = solve_active(cost, rows, counts, prices, labels, held, whole)
        if solved:
            prices -= prices[np.argmax(counts)]  # small where most rows are: rounds best
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
    prices[:] = 0.0
    levels = 0
    while n >> 3 * (levels + 1) >= max(128, 4 * C):
        levels += 1
    for level in range(levels, 0, -1):
        size = n >> 3 * level
        sample = np.empty((size, C))
        for i in range(size):
            scramble = (i * 40503 % 65521) % (n // size)  # so that no order of the rows is in step
            for c in range(C):
                sample[i, c] = cost[i * n // size + scramble, c]
        targets = np.diff(np.append(0, np.rint(np.cumsum(counts) * (size / n)).astype(np.int64)))
        own, gap, held = np.empty(size, np.int64), np.empty(size), np.empty(C, np.int64)
        enough = max(few(C), np.sqrt(size) / 2)
        if newton(sample, targets, prices, own, gap, held, whole, enough, 8) > enough:
            solve_from(prices, sample, targets, own, whole, tolerance, True)
    return solve_from(prices, cost, counts, labels, whole, tolerance, True)


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
def solve_bags(cost, counts, offsets, prices, warm, labels, first, last, where, values):
    """Solve bags first..last-1 in place.

    Each gets (status, row, class) in `where` and (objective, gap, tolerance) in `values`.
    """
    for bag in range(first, last):
        mine = slice(offsets[bag], offsets[bag + 1])
        rows, own = cost[mine], labels[mine]
        n, C = rows.shape
        status, row, c, magnitude, span, whole = survey(rows, counts[bag])
        whole &= span * C < 2.0**53  # below it no sum of costs along a path is rounded
        tolerance = 0.0 if whole else 8 * EPS * n * span
        gap = 0.0
        if status == SOLVED and span == INF:
            status, gap = UNCERTIFIED, INF
        if status == SOLVED and n > 0:
            classes = np.flatnonzero(counts[bag])
            part = prices[bag][classes]
            near = warm and part.max() - part.min() <= 4 * C * span  # no optimal ones spread so far
            given = counts[bag][classes], part, own, whole, tolerance, near
            if len(classes) == C and magnitude <= 2 * span:
                status, gap = solve(rows, *given)
            else:
                status, gap = solve(shifted(rows, classes), *given)
                own[:] = classes[own]
            prices[bag] = part.min() - 2 * span  # too low for any row to want an absent class
            prices[bag][classes] = part
        where[bag] = status, row, c
        values[bag] = objective(rows, own) if status == SOLVED else INF, gap, tolerance
