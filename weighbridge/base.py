"""Contracts shared by every layer, handed on from where they are."""

from __future__ import annotations

from weighbridge.constants import PROBABILITY as PROBABILITY
from weighbridge.errors import CheckpointError as CheckpointError
from weighbridge.errors import DataError as DataError
from weighbridge.errors import ForkError as ForkError
from weighbridge.errors import InUseError as InUseError
from weighbridge.errors import MethodError as MethodError
from weighbridge.errors import MissingDependencyError as MissingDependencyError
from weighbridge.errors import ModelError as ModelError
from weighbridge.errors import WeighbridgeError as WeighbridgeError
from weighbridge.errors import WeighbridgeWarning as WeighbridgeWarning
from weighbridge.status import Status as Status
from weighbridge.types import Array as Array
from weighbridge.types import Kernel as Kernel
from weighbridge.types import LogDensity as LogDensity
from weighbridge.types import PyTree as PyTree
