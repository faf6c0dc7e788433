"""Several processes that train one net together: what they tell each other, and how they end.

`torchrun` starts the same program once per *rank*, and tells each in its environment which it is.
Every rank has the whole net and knows all bags; it computes a share of every step, and decides the
labels of a share of the bags. All that they tell each other goes through the few functions of
`Ranks`, in the same order on every rank; a process alone says nothing, copies nothing, and does not
even import `torch.distributed`.

Numbers are summed in the same order for all ranks, so that their weights stay equal bit by bit.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from threading import Timer
from typing import TYPE_CHECKING, Any

from apportion.errors import ConfigError, Option, RunError, count

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "ALONE",
    "Ranks",
    "connected",
    "is_first",
    "is_of_another",
    "is_one_of_many",
    "lost",
    "speaks_for_all",
    "together",
]

log = logging.getLogger("apportion")

OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LONGEST = timedelta(minutes=30)  # that ranks wait for one that is alive, but says nothing
FOR_LONG = timedelta(days=7)  # the same, while one reads all data
TO_CONNECT = 60.0  # seconds after which it is said that others have not come yet
TO_SPEAK = 3.0  # seconds that the rank in which an error arose has to say so
BUCKET = 2**25  # numbers that are summed at a time
GO_ON, STOP = "go on", "stop"
APART = ContextVar("apart", default=False)  # whether the first does what the others wait for
OF_ANOTHER = "The reason lies in another process."  # a note of the error of a rank that lost one


@dataclass(frozen=True)
class Ranks:
    """Which of several processes this one is, and how they talk to each other.

    Parameters
    ----------
    rank, world : int
        The number of this process, from 0, and how many there are.
    device : str
        Where numbers have to be for the others to get them: NCCL takes them from a GPU.

    Examples
    --------
    Of ten rows, the second of three ranks computes three; of three rows, the first computes all:
    a net's normalisation needs two rows at least. A rank without a row takes two that do not count.

    >>> second = Ranks(1, 3)
    >>> second.share(slice(0, 10)), second.counted(slice(0, 10))
    (slice(3, 6, None), 3)
    >>> Ranks(0, 3).share(slice(0, 3)), second.share(slice(0, 3)), second.counted(slice(0, 3))
    (slice(0, 3, None), slice(0, 2, None), 0)
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether this one writes files, logs, and decides what only one can."""
        return self.rank == 0

    @property
    def are_several(self) -> bool:
        """Whether there are others."""
        return self.world > 1

    @property
    def first_here(self) -> int:
        """The first rank on this machine; where nothing tells which it is, this one."""
        return self.rank - _number("LOCAL_RANK")

    # ------------------------------------------------------------------------------- rows of a step

    def share(self, rows: slice) -> slice:
        """Return which of some rows this rank computes: at least two, if there are two."""
        if not self.are_several:
            return rows
        n, busy = rows.stop - rows.start, self._busy(rows)
        if self.rank >= busy:
            return slice(rows.start, rows.start + min(n, 2))
        ends = (rows.start + n * r // busy for r in (self.rank, self.rank + 1))
        return slice(*ends)

    def counted(self, rows: slice) -> int:
        """Return how many of its share count: none, if it only takes part in what all do."""
        if not self.are_several:
            return int(rows.stop - rows.start)
        own = self.share(rows)
        return int(own.stop - own.start) if self.rank < self._busy(rows) else 0

    def _busy(self, rows: slice) -> int:
        return min(self.world, max(int(rows.stop - rows.start) // 2, 1))

    # ------------------------------------------------------------------------------ what they say

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all ranks, in place; those of one type together."""
        if not self.are_several:
            return
        import torch

        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            own = [tensor for tensor in tensors if tensor.dtype is dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in own])
            sent = flat.to(self.device)
            for first in range(0, len(sent), BUCKET):
                self._said("all_reduce", sent[first : first + BUCKET])
            summed = torch.split(sent.to(flat.device), [tensor.numel() for tensor in own])
            for tensor, value in zip(own, summed, strict=True):
                tensor.detach().copy_(value.view_as(tensor))

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks of tensors of one shape."""
        if not self.are_several:
            return tensor
        summed = tensor.detach().clone()
        self.sum_([summed])
        return summed

    def gathered(self, tensor: Tensor) -> Tensor:
        """Return the rows of all ranks, one after the other; each may have any number of them."""
        if not self.are_several:
            return tensor
        import torch

        lengths = torch.zeros(self.world, dtype=torch.int64)
        lengths[self.rank] = len(tensor)
        ends = self.total(lengths).cumsum(0).tolist()
        shape = (ends[-1], *tensor.shape[1:])
        found = torch.empty(shape, dtype=tensor.dtype, device=self.device)
        for source, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if first == end:
                continue
            if source == self.rank:
                found[first:end] = tensor.detach().to(self.device)
            self._said("broadcast", found[first:end], src=source)
        return found.to(tensor.device)

    def as_of(self, rank: int, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of one rank, in place."""
        if not self.are_several:
            return
        import torch

        for tensor in tensors:
            sent = tensor.detach().to(self.device).reshape(-1)
            # As bytes: not all types that tensors have can be sent.
            self._said("broadcast", sent.view(torch.uint8), src=rank)
            tensor.detach().copy_(sent.view_as(tensor))

    def by_first(self, decide: Callable[[], Any]) -> Any:
        """Return, on all ranks, what a function returns that the first alone calls: plain values.

        If it raises KeyboardInterrupt, all do. After any other error it says no more, and the
        others raise that of `lost`. What the function itself trains, it trains alone.
        """
        if not self.are_several:
            return decide()
        answer: Any = None
        if self.leads:
            before = APART.set(True)
            try:
                answer = decide()
            except KeyboardInterrupt:
                self.told([STOP])
                raise
            finally:
                APART.reset(before)
        said, *answers = self.told([GO_ON, answer])
        if said == STOP:
            raise KeyboardInterrupt
        return answers[0]

    def told(self, value: Any, rank: int = 0) -> Any:
        """Return, on all ranks, the plain value, of JSON's types, that one of them has."""
        if not self.are_several:
            return value
        import torch

        written = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor([len(written)])
        self.as_of(rank, [length])
        if self.rank != rank:
            written = torch.empty(int(length), dtype=torch.uint8)
        self.as_of(rank, [written])
        return json.loads(bytes(written.tolist()))

    def wait(self) -> None:
        """Wait until all ranks have come as far."""
        if self.are_several:
            import torch

            self.sum_([torch.zeros(1)])

    @contextmanager
    def patient(self) -> Iterator[Callable[[], None]]:
        """Yield a function that waits as `wait` does, but for much longer."""
        if not self.are_several:
            yield lambda: None
            return
        import torch
        import torch.distributed as dist

        group = dist.new_group(timeout=FOR_LONG, backend="gloo")
        try:
            yield lambda: self._said("all_reduce", torch.zeros(1), group=group)
        finally:
            dist.destroy_process_group(group)

    def _said(self, name: str, tensor: Tensor, **options: Any) -> None:
        import torch.distributed as dist

        try:
            getattr(dist, name)(tensor, **options)
        except RuntimeError as error:
            raise lost(self.world) from error


ALONE = Ranks()


def lost(world: int) -> RunError:
    """Return the error of a rank that has lost another one."""
    error = RunError(
        f"another of the {world} processes that train together has ended.",
        "Its own message says why, if it could write one; there is none if torchrun itself was "
        "told to end, as by a scheduler. Run again: a training with a run folder goes on from its "
        "last checkpoint, with any number of processes.",
    )
    error.add_note(OF_ANOTHER)
    return error


def is_of_another(error: BaseException) -> bool:
    """Tell whether the reason of an error lies in another rank, which tells of it itself."""
    return OF_ANOTHER in getattr(error, "__notes__", ())


def is_one_of_many() -> bool:
    """Tell whether torchrun, or what sets the same variables, has started several processes."""
    several = all(name in os.environ for name in OF_TORCHRUN) and _number("WORLD_SIZE") > 1
    return several and not APART.get()


def is_first() -> bool:
    """Tell whether this process is the first of several, or the only one."""
    return not is_one_of_many() or _number("RANK") == 0


def connected() -> Ranks:
    """Return the ranks that are connected; without a connection, this process alone."""
    if not is_one_of_many():
        return ALONE
    import torch.distributed as dist

    if not dist.is_initialized():
        return ALONE
    where = "cuda" if "nccl" in str(dist.get_backend()) else "cpu"
    return Ranks(dist.get_rank(), dist.get_world_size(), where)


@contextmanager
def together(device: str = "auto") -> Iterator[Ranks]:
    """Connect the ranks that torchrun has started until the end of the block; else be alone.

    Blocks within this one share its connection, as they do that of a caller who has called
    `torch.distributed.init_process_group`. An error in one rank ends the connection, and so the
    others. All but the first rank log nothing meanwhile.

    Parameters
    ----------
    device : str
        As in `apportion.TrainConfig`: every rank takes a GPU of its own, unless it is "cpu".
    """
    if not is_one_of_many():
        yield ALONE
        return
    import torch
    import torch.distributed as dist

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        _take_own_gpu(device)
    if dist.is_initialized():
        yield connected()
        return
    ranks = Ranks(_number("RANK"), _number("WORLD_SIZE"), "cuda" if on_gpu else "cpu")
    _connect(ranks)
    level = log.level
    try:
        if ranks.leads:
            log.info("%d processes train together.", ranks.world)
        else:
            log.setLevel(logging.CRITICAL)
        yield ranks
        ranks.wait()  # until the first one has written all files
    finally:
        log.setLevel(level)
        dist.destroy_process_group()


def _connect(ranks: Ranks) -> None:
    import torch.distributed as dist
    import torch.distributed.nn  # noqa: F401 (imported later, it would keep this connection for good)
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if ranks.rank >= ranks.world:
        raise ConfigError(
            f"the environment variable RANK is {ranks.rank}, but WORLD_SIZE {ranks.world}.",
            "Ranks are counted from 0. Start with torchrun, which sets both, or remove them.",
        )
    waits = Timer(TO_CONNECT, _say_waiting, [ranks])
    waits.daemon = True
    if ranks.rank == ranks.first_here:
        waits.start()
    try:
        store, _, _ = next(rendezvous("env://", timeout=LONGEST))
        # What an earlier connection has left in the store must not be taken for this one's.
        number = store.add(f"apportion/{ranks.rank}", 1)
        dist.init_process_group(
            "nccl" if ranks.device == "cuda" else "gloo",
            store=PrefixStore(f"apportion/connection/{number}", store),
            rank=ranks.rank,
            world_size=ranks.world,
            timeout=LONGEST,
        )
    except (RuntimeError, ValueError) as error:
        problem = str(error).strip().partition("\n")[0].rstrip(".")
        raise RunError(
            f"process {ranks.rank} of {ranks.world} cannot reach the others: {problem}.",
            "Check the address and the port that torchrun was given, and that the machines may "
            "open connections to each other. On one machine: torchrun --standalone. In a script "
            "all processes must call the same trainings in the same order.",
        ) from error
    finally:
        waits.cancel()


def _say_waiting(ranks: Ranks) -> None:
    log.warning(
        "Process %d waits for the others: there are %d, by the environment variable WORLD_SIZE. "
        "Start them, or remove it where there is but one.",
        ranks.rank,
        ranks.world,
    )


def _take_own_gpu(device: str) -> None:
    """Make the GPU with the number of this process on its machine the current one."""
    import torch

    own, of_machine = _number("LOCAL_RANK"), torch.cuda.device_count()
    if ":" in device and _number("LOCAL_WORLD_SIZE") > 1:
        raise ConfigError(
            f"device is {device!r}, which all processes of a machine would share.",
            "Pass 'cuda' or 'auto': each process then takes one of its own.",
        )
    if own >= of_machine:
        several = max(_number("LOCAL_WORLD_SIZE"), own + 1)
        fewer = f"--nproc_per_node={of_machine} to torchrun, or " if of_machine else ""
        raise ConfigError(
            f"torch sees {count(of_machine, 'GPU')} on this machine, for "
            f"{count(several, 'process')}.",
            (f"Pass {fewer}", Option("device", "'cpu'", "cpu"), "."),
        )
    torch.cuda.set_device(own)


def _number(name: str) -> int:
    value = os.environ.get(name, "0")
    if not value.isdecimal():
        raise ConfigError(
            f"the environment variable {name} is {value!r}, not a number.",
            "Start with torchrun, which sets it, or remove it.",
        )
    return int(value)


def speaks_for_all(error: BaseException) -> bool:
    """Tell whether this rank is to tell of an error: the first in which one arose, and no other.

    A rank that has lost another leaves it a moment to say why. Ranks that torchrun has not started
    cannot ask each other: each tells of its own errors.
    """
    try:
        if not is_one_of_many():
            return True
    except ConfigError:  # of a variable that torchrun would have set otherwise
        return True
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # the store is a rank's own
        return _number("RANK") == 0 or not is_of_another(error)
    from torch.distributed.rendezvous import rendezvous

    key = "apportion/error"
    try:
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=TO_SPEAK)))
        until = time.monotonic() + TO_SPEAK
        while is_of_another(error) and time.monotonic() < until:
            if store.check([key]):
                return False
            time.sleep(0.05)
        return bool(store.add(key, 1) == 1)
    except RuntimeError:
        return _number("RANK") == 0
