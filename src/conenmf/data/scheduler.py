"""Dask's side of a cluster: collections of keys, the client, and failures with names.

A task can fail in three ways, which the caller must be able to distinguish. A step of ours, or of
the caller, raises an error: that is raised as it is, as if there were no cluster. The caller's own
graph fails, which makes the chunks. Or the cluster does.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask

from ..errors import ClusterError, ConeNMFError, ReadError
from .chunks import StepError
from .resources import available_memory

__all__ = ["Keys", "client_id", "fits", "naming_failures"]

_OF_CLUSTERS = ("distributed", "asyncio", "concurrent", "tornado")


class Keys:
    """A collection as Dask defines it: the keys (name, 0), (name, 1), ... of a graph."""

    def __init__(self, name: str, count: int, graph: dict[Any, Any]) -> None:
        self.name = name
        self.count = count
        self.graph = graph

    def keys(self) -> list[Any]:
        """All keys, in order."""
        return [(self.name, i) for i in range(self.count)]

    def first(self) -> Any:
        """The value of the first key, once it is computed."""
        value = self.graph[self.name, 0]
        return value.result() if hasattr(value, "result") else value

    def persisted(self) -> Keys:
        """The same keys, computed, with values that stay where they are."""
        keys: Keys
        (keys,) = dask.persist(self, optimize_graph=False)
        return keys

    def __dask_graph__(self) -> dict[Any, Any]:
        return self.graph

    def __dask_keys__(self) -> list[Any]:
        return self.keys()

    def __dask_postcompute__(self) -> tuple[Any, tuple[Any, ...]]:
        return list, ()

    def __dask_postpersist__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._rebuild, ()

    def _rebuild(self, graph: Any, *, rename: dict[str, str] | None = None) -> Keys:
        return Keys(self.name, self.count, dict(graph))

    __dask_scheduler__ = staticmethod(dask.threaded.get)


def fits(size: int) -> bool:
    """Whether the data take less than half of the memory of the workers."""
    client = _client()
    if client is None:
        return size < available_memory() // 2
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return size < sum(int(worker["memory_limit"]) for worker in workers) // 2


def client_id() -> str | None:
    """The name of the client that Dask would use now, if there is one."""
    client = _client()
    return None if client is None else str(client.id)


def _client() -> Any:
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def naming_failures(client: str | None, *, opening: bool = False) -> Iterator[None]:
    """Raise a named error if a client, a scheduler, a worker or a chunk is lost.

    `client` has what was computed earlier, if anything. While V is opened only its own chunks are
    computed, so every other failure is theirs.
    """
    _require_client(client)
    try:
        yield
    except ConeNMFError:
        raise
    except StepError as failed:
        error = failed.problem  # whose own cause stays: `failed` would lead back to it
        raise error from error.__cause__
    except (Exception, CancelledError) as problem:
        _require_client(client, problem)
        cause = f"{type(problem).__name__}: {problem}"
        library = type(problem).__module__.partition(".")[0]
        if library in _OF_CLUSTERS or isinstance(problem, TimeoutError):
            raise ClusterError(
                f"the cluster was lost, or gave up on a task: {cause}; "
                "start it again and repeat the call, which resumes if it has a checkpoint"
            ) from problem
        if opening or isinstance(problem, OSError):
            raise ReadError(
                f"a chunk of the Dask array could not be computed: {cause}"
            ) from problem
        raise ClusterError(
            f"a task failed: {cause}; if the graph of the Dask array is not the reason, look into "
            "the logs of the workers"
        ) from problem


def _require_client(client: str | None, problem: BaseException | None = None) -> None:
    """Refuse to compute with what another client has, which Dask cannot."""
    if client is not None and client != client_id():
        raise ClusterError(
            "the client with which the data were opened is closed, or no longer the one that Dask "
            "uses: connect to the cluster, open the data again and repeat the call, which resumes "
            "if it has a checkpoint"
        ) from problem
