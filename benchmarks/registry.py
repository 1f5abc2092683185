"""The benchmarks by name; none is imported before it runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .figures import Figure, Unmeasured
    from .setting import Setting

    Function = Callable[[Setting], Iterator[Figure | Unmeasured]]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Args:
        name: what `--only` takes, and the name of the function.
        description: what it measures.
        module: where the function is, if not in the module of its name.
        on_request: it does not run unless it is asked for.
    """

    name: str
    description: str
    module: str = ""
    on_request: bool = False

    @property
    def function(self) -> "Function":
        """The function, a generator of figures."""
        return getattr(import_module(f".{self.module or self.name}", __package__), self.name)


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("training", "JoBi and plain ComplEx through fit; the sampler alone"),
        Benchmark("shared", "shared negatives against negatives of each triple's own"),
        Benchmark("quality", "time to a validation Hits@10 with shared and with own negatives"),
        Benchmark("scale", "a training step with 1,900,000 entities against one with 14,541"),
        Benchmark("ranking", "filtered ranking of the test split against one bare matrix product"),
        Benchmark("peers", "PyKEEN, AmpliGraph and LibKGE beside jobi-tf, in turns", "comparison", on_request=True),
        Benchmark("data", "opening prepared graphs; preparing 19.3 million triples of text"),
        Benchmark("large", "an epoch, the memory and the ranking of 1.9 million entities, 19.3 million triples"),
        Benchmark("growth", "time and memory of a step against entities, triples, negatives, batch and d"),
        Benchmark("memory", "resident memory over 20 epochs"),
        Benchmark("serving", "answers a second and waits of the embedded server, by REST and gRPC, 1 to 32 clients"),
    )
}
