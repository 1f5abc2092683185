"""What the server does for a request, whichever protocol brings it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from .errors import Code, Refusal
from .limits import Limits
from .metrics import Metrics
from .models import Model, Models, not_found
from .names import Names
from .signature import Signature
from .versions import Version

DEFAULT = "serving_default"
_METHODS = {"classify": "classification", "regress": "regression"}
_log = logging.getLogger("jobi_tf.serving")


@dataclass(frozen=True)
class Target:
    """Whom a request asks.

    Args:
        model: the model's name.
        version: the number of a version; the newest if neither this nor `label` is given.
        label: the label of a version.
        signature: the name of a signature; the default one if empty.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str = ""


@dataclass
class Asked:
    """What came of a request, for the metrics; names are noted only once they are found to exist."""

    protocol: str
    model: str = ""
    signature: str = ""
    code: Code = Code.OK
    began: float = field(default_factory=time.perf_counter)


class Service:
    """Answers requests within the limits.

    Args:
        models: what is served.
        limits: what is not let pass.
        metrics: is told of every request.
        timeout: seconds that a request may take.
    """

    def __init__(self, models: Models, limits: Limits, metrics: Metrics, timeout: float) -> None:
        self.models = models
        self.limits = limits
        self.metrics = metrics
        self.timeout = timeout

    @contextmanager
    def answering(self, protocol: str) -> Iterator[Asked]:
        """Counts a request, whatever comes of it; an error that is none of the request's ends as INTERNAL.

        Raises:
            Refusal: what is to be answered.
        """
        asked = Asked(protocol)
        try:
            yield asked
        except Refusal as refused:
            asked.code = refused.code
            raise
        except asyncio.CancelledError:
            asked.code = Code.CANCELLED
            raise
        except Exception:
            asked.code = Code.INTERNAL
            _log.exception("a request failed for a reason that is not its own")
            raise Refusal(Code.INTERNAL, "the server failed to answer: its log says why") from None
        finally:
            seconds = time.perf_counter() - asked.began
            self.metrics.answered(asked.model, asked.protocol, asked.signature, asked.code, seconds)

    def find(self, target: Target, asked: Asked) -> Version:
        """The version that a request asks.

        Raises:
            Refusal: it is not available.
        """
        model = self.models.get(target.model)
        if model is None:
            raise not_found(target.model, target.version)
        asked.model = model.name
        return model.find(_number(model, target))

    async def predict(
        self,
        target: Target,
        asked: Asked,
        read: Callable[[Signature], Mapping[str, np.ndarray]],
        unknown: Callable[[str], Refusal],
        seconds: float | None = None,
    ) -> tuple[Version, Signature, dict[str, np.ndarray]]:
        """Computes all outputs of a signature.

        Args:
            target: whom the request asks.
            asked: notes who that is.
            read: reads the inputs of the request, knowing what is expected.
            unknown: what is said of a signature that does not exist.
            seconds: how long it may take, if shorter than the server's own limit.

        Raises:
            Refusal: there is no answer.
        """
        version = self.find(target, asked)
        with version.in_use():
            signature = version.servable.signatures.get(target.signature or DEFAULT)
            if signature is None:
                raise unknown(target.signature or DEFAULT)
            asked.signature = signature.name
            inputs = read(signature)
            rows = signature.check(inputs)
            self.limits.check_rows(rows)
            try:
                async with asyncio.timeout(self.timeout if seconds is None else min(self.timeout, seconds)):
                    outputs = await version.batcher(signature.name).submit(inputs, rows)
            except TimeoutError:
                raise self.limits.late() from None
            return version, signature, outputs

    def refuse_method(self, method: str, target: Target, asked: Asked, unknown: Callable[[str], Refusal]) -> Refusal:
        """What is said to classify and regress, which are for other models than those served here."""
        version = self.find(target, asked)
        signature = version.servable.signatures.get(target.signature or DEFAULT)
        if signature is None:
            return unknown(target.signature or DEFAULT)
        return Refusal(
            Code.INVALID_ARGUMENT,
            f"Expected {_METHODS[method]} signature method_name to be tensorflow/serving/{method}. "
            f"Was: {signature.method}",
        )

    async def names(self, target: Target, asked: Asked) -> Names:
        """The names that a version knows.

        Raises:
            Refusal: it is not available, or has not read them in time.
            DataError: its export lists none.
        """
        version = self.find(target, asked)
        try:
            async with asyncio.timeout(self.timeout):
                return await asyncio.shield(version.names())
        except TimeoutError:
            raise self.limits.late() from None

    def status(self, target: Target, asked: Asked) -> list[Version]:
        """The versions of a model, or the one that is asked for, with their states.

        Raises:
            Refusal: there is none.
        """
        model = self.models.get(target.model)
        if model is None and target.version is None:
            raise Refusal(Code.NOT_FOUND, f"Could not find any versions of model {target.model}")
        asked.model = model.name if model else ""
        number = _number(model, target) if model else target.version
        if number is None and model:
            return model.listed()
        if model is None or number not in model.versions:
            raise Refusal(Code.NOT_FOUND, f"Could not find version {number} of model {target.model}")
        return [model.versions[number]]


def _number(model: Model, target: Target) -> int | None:
    return target.version if target.label is None else model.number_of(target.label)
