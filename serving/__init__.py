"""Serving of exported models, and the client that asks for their answers."""

from .client import Client as Client
from .client import Embeddings as Embeddings
from .client import Scores as Scores
from .client import ServedAnswer as ServedAnswer
from .client import UnknownNameError as UnknownNameError
from .client import VersionStatus as VersionStatus
