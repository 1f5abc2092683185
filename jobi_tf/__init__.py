"""Knowledge-graph completion with TensorFlow and Keras 3.

Embeddings, such as DistMult, ComplEx and SimplE, trained jointly with entity-relation pair occurrences (JoBi, Balkır et
al., EMNLP 2019). TensorFlow is loaded when one of the names below is first used, not when this package is imported.
"""

from importlib import import_module
from typing import Any

import lazy_loader
import wrapt

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # the names in __init__.pyi


@wrapt.when_imported("keras")
def _register_classes(keras: Any) -> None:
    """Registers the classes of saved models as soon as Keras is there, so that `keras.saving.load_model` knows them."""
    if keras.backend.backend() == "tensorflow":
        for module in ("models.jobi", "losses", "optimizers"):
            import_module(f"{__name__}.{module}")
