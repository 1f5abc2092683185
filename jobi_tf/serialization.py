"""Saving of objects by the arguments of their constructors."""

import inspect
from typing import Any


def constructor_arguments(instance: Any, base: type) -> dict[str, Any]:
    """Returns the constructor's arguments of an object, each read from the attribute of the same name.

    Subclasses of `base` may add arguments of their own, and pass the others on by `*args` or `**kwargs`. A subclass
    that overrides `get_config` returns its own arguments there.

    Raises:
        AttributeError: there is no such attribute.
    """
    names: list[str] = []
    for cls in type(instance).__mro__[: type(instance).__mro__.index(base) + 1]:
        if cls is not base and "get_config" in vars(cls):
            names.clear()
        elif constructor := vars(cls).get("__init__"):
            _, *parameters = inspect.signature(constructor).parameters.values()
            own = [x.name for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            names += own
            if len(own) == len(parameters):  # it passes nothing on
                break
    if missing := [name for name in names if not hasattr(instance, name)]:
        what = f"{type(instance).__name__} to keep its argument {missing[0]} in an attribute of that name"
        raise AttributeError(f"expected {what}, so that it can be saved")
    return {name: getattr(instance, name) for name in names}
