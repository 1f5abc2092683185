"""Serving of exported models, and the client that asks for their answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client as Client
    from .client import Embeddings as Embeddings
    from .client import Scores as Scores
    from .client import ServedAnswer as ServedAnswer

__all__ = ["Client", "Embeddings", "Scores", "ServedAnswer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.client"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
