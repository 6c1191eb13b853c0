"""Errors that weighbridge raises on purpose."""

from __future__ import annotations


class WeighbridgeError(Exception):
    """Root of every error that weighbridge raises on purpose.

    Each message names what is wrong and what to do about it.
    """


class DataError(WeighbridgeError, ValueError):
    """The observations cannot be used: a bad row, column, file or shape."""


class ModelError(WeighbridgeError, ValueError):
    """The model cannot be used: an improper prior, a likelihood that is not a scalar, ..."""


class MethodError(WeighbridgeError, ValueError):
    """A method, a kernel or one of their settings is unknown or out of range."""


class CheckpointError(WeighbridgeError, ValueError):
    """A saved file is damaged, or belongs to something else."""


class InUseError(WeighbridgeError, RuntimeError):
    """Another call, thread or process is at work on the same run."""


class ForkError(WeighbridgeError, RuntimeError):
    """A forked process cannot go on with what its parent has made."""


class MissingDependencyError(WeighbridgeError, ImportError):
    """An optional package is needed for what was asked."""


class WeighbridgeWarning(UserWarning):
    """What a user should know before a run goes on, and may want to change."""
