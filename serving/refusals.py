"""What a client says when a server does not answer, in the same words whichever the protocol."""

import re

from jobi_tf.errors import JobiError

from .address import Address

# TensorFlow's words about an assertion in the model, and about where in the graph it stands.
_ASSERTION = re.compile(r"assertion failed: \[(?P<what>[^\]]*?):?\] \[(?P<values>.*)\]$")
_PLACE = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)


def plain(text: str) -> str:
    """Returns a server's message in one line, as a person would put it."""
    line = " ".join(_PLACE.sub("", text).split())
    return _ASSERTION.sub(r"\g<what>: \g<values>", line) or "no reason given"


def token_expected(address: Address) -> JobiError:
    """The server does not let the client in."""
    came = "got none" if address.token is None else "the one that was sent is not valid"
    return JobiError(f"{address.url} expects a bearer token, {came}")


def late(address: Address, answer: str = "answer") -> JobiError:
    """The time is over."""
    return JobiError(f"no {answer} from {address.url} within the time-out")
