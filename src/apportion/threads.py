"""How many threads work is worth, and how many cores are free for it.

Threads that share a step of training meet several times in it, and whoever is first waits for the
last. A step that is too small takes longer with them. So does any step of a table on cores that
other programs keep busy: the last one may not even run (measured on two cores, steps of 128 rows: 4
times as long beside a program that used both, and single epochs 50 times). Label decisions
(`apportion.labels`) cut their work into pieces that wait for nothing, and take every core.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["available_cores", "idle_cores", "threads_worth"]

WORTH_SHARING = 20_000  # numbers in a step of a table: a second thread slows down smaller ones
LEAST = 5_000  # numbers per thread
MOST = 8  # threads that share the step of a table
SAMPLES, APART = 5, 0.004  # looks at what else is running, and the seconds between them


def available_cores() -> int:
    """Return how many cores this process may use.

    Those are limited by its affinity, by the quota of its container (cgroups), and by
    OMP_NUM_THREADS, which a user or a pool of worker processes sets to share a machine.
    """
    from joblib import cpu_count  # knows all quotas, and is loaded only where threads may be

    cores: int = cpu_count()
    with suppress(KeyError, ValueError):  # it may be a list, one number per level
        cores = min(cores, max(1, int(os.environ["OMP_NUM_THREADS"].partition(",")[0])))
    return cores


def idle_cores() -> int:
    """Return how many of the available cores nothing else is running on, at least 1.

    What runs in every one of a few samples counts as running.
    """
    others = _running_beside_us()
    for _ in range(SAMPLES - 1):
        if not others:
            break
        time.sleep(APART)
        others = min(others, _running_beside_us())
    return max(1, min(available_cores(), (os.cpu_count() or 1) - others))


def threads_worth(numbers: int) -> int:
    """Return how many threads a step over so many numbers of a table is worth.

    Examples
    --------
    >>> threads_worth(128 * 20), threads_worth(1024 * 20), threads_worth(16_384 * 20)
    (1, 4, 8)
    """
    return 1 if numbers < WORTH_SHARING else min(numbers // LEAST, MOST)


def _running_beside_us() -> int:
    """Return how many threads of all programs run or wait for a core now, without this one."""
    with suppress(OSError, ValueError, IndexError):  # systems other than Linux have no such file
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1
    with suppress(OSError, AttributeError):
        return int(os.getloadavg()[0])
    return 0
