"""Errors that weighbridge raises on purpose."""

from __future__ import annotations


class WeighbridgeError(Exception):
    """Base class of every error that weighbridge raises on purpose.

    Each message names what is wrong and what to do about it.
    """


class DataError(WeighbridgeError, ValueError):
    """The observations cannot be used: a bad row, column, file or shape."""


class ModelError(WeighbridgeError, ValueError):
    """The model cannot be used: an improper prior, a likelihood that is not a scalar, ..."""


class MethodError(WeighbridgeError, ValueError):
    """A method, a kernel or one of their settings is unknown or out of range."""


class CheckpointError(WeighbridgeError, ValueError):
    """A saved file is damaged, or belongs to another object."""


class InUseError(WeighbridgeError, RuntimeError):
    """Another call, thread or process is using the same run."""


class ForkError(WeighbridgeError, RuntimeError):
    """A forked process cannot use objects that its parent process made."""


class MissingDependencyError(WeighbridgeError, ImportError):
    """An optional package is needed for this call."""


class WeighbridgeWarning(UserWarning):
    """A problem that does not stop the run, but that the user should know about."""
