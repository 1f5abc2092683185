"""TensorFlow Serving's REST paths, as a client uses them."""

import json
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import numpy as np

from jobi_tf.errors import DataError, JobiError, MissingExtraError

from .address import Address, Model, VersionStatus
from .refusals import late, plain, token_expected
from .retrying import PassingError

BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class RestCalls:
    """Requests over connections that are kept."""

    def __init__(self, address: Address):
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(f"{address.scheme}:// needs httpx: pip install 'jobi-tf[client]'") from error
        self._httpx = httpx
        self._address = address
        verify: ssl.SSLContext | bool = True
        if address.certificates is not None:
            try:
                verify = ssl.create_default_context(cadata=address.certificates.decode(errors="replace"))
            except ssl.SSLError as error:
                raise DataError(f"expected certificates in PEM for {address.url}: {error.reason or error}") from None
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self._client = httpx.Client(headers=headers, verify=verify)

    def predict(
        self, model: Model, signature: str, inputs: Mapping[str, list[str]], seconds: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature, for inputs of strings [N]."""
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        outputs = self._call("POST", f"{_path(model)}:predict", seconds, body).get("outputs")
        if not isinstance(outputs, dict):
            raise self._foreign()
        return {name: _array(value) for name, value in outputs.items()}

    def status(self, model: Model, seconds: float) -> list[VersionStatus]:
        """Returns the states of the model's versions."""
        found = self._call("GET", _path(model), seconds).get("model_version_status", [])
        return [
            VersionStatus(int(one["version"]), one["state"], one.get("status", {}).get("error_message", ""))
            for one in found
        ]

    def shapes(self, model: Model, seconds: float) -> dict[str, dict[str, list[int]]]:
        """Returns for each signature the shape of each output, -1 being open."""
        reply = self._call("GET", f"{_path(model)}/metadata", seconds)
        try:
            signatures = reply["metadata"]["signature_def"]["signature_def"]
            return {
                name: {
                    key: [int(dim["size"]) for dim in info["tensor_shape"]["dim"]]
                    for key, info in signature["outputs"].items()
                }
                for name, signature in signatures.items()
            }
        except (KeyError, TypeError, ValueError):
            raise self._foreign() from None

    def models(self, seconds: float) -> list[str]:
        """Returns the names of the models that are served; none if the server does not tell."""
        try:
            return list(self._call("GET", "/v1/models", seconds).get("models", []))
        except (NoSuchPathError, DataError):  # TensorFlow Serving takes it for a mistake
            return []

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _call(self, method: str, path: str, seconds: float, body: bytes | None = None) -> dict[str, Any]:
        httpx, url = self._httpx, self._address.url
        end = time.monotonic() + seconds
        headers = {"Content-Type": "application/json"} if body is not None else {}
        parts = []
        try:
            with self._client.stream(
                method, url + path, content=body, headers=headers, timeout=max(seconds, 0.001)
            ) as reply:
                for part in reply.iter_bytes():
                    parts.append(part)
                    if time.monotonic() > end:  # httpx's own limit is for each part
                        raise late(self._address, "whole answer")
        except httpx.TimeoutException:
            raise late(self._address) from None
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise PassingError(f"cannot reach {url}: {error or type(error).__name__}") from None
        except httpx.HTTPError as error:
            raise JobiError(f"cannot ask {url}: {error}") from None
        content = b"".join(parts)
        if reply.status_code != HTTPStatus.OK:
            raise self._explained(reply.status_code, content)
        try:
            answer = json.loads(content)
        except ValueError:
            raise self._foreign() from None
        if not isinstance(answer, dict):
            raise self._foreign()
        return answer

    def _explained(self, code: int, content: bytes) -> JobiError:
        url = self._address.url
        text = _error(content)
        if code in BUSY:
            return PassingError(f"{url} is too busy: {text}")
        if code == HTTPStatus.UNAUTHORIZED:
            return token_expected(self._address)
        if code == HTTPStatus.BAD_REQUEST:
            return DataError(text)
        kind = NoSuchPathError if code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) else JobiError
        return kind(f"{url} answered {code}: {text}")

    def _foreign(self) -> JobiError:
        return JobiError(f"expected an answer in TensorFlow Serving's form from {self._address.url}, got another")


class NoSuchPathError(JobiError):
    """The server knows no such model, or no such question."""


def _path(model: Model) -> str:
    path = f"/v1/models/{quote(model.name, safe='')}"
    if model.version is not None:
        return f"{path}/versions/{model.version}"
    return path if model.label is None else f"{path}/labels/{quote(model.label, safe='')}"


def _array(value: Any) -> np.ndarray:
    first = value
    while isinstance(first, list) and first:
        first = first[0]
    return np.array(value, np.object_ if isinstance(first, str) else None)


def _error(content: bytes) -> str:
    try:
        text = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        text = content[:200].decode(errors="replace")
    return plain(str(text))
