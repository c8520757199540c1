"""Every error this package raises on purpose. Knows nothing of the rest.

Each kind is also the built-in exception that it is, so that code which
catches ``ValueError`` or ``FileNotFoundError`` goes on working.
"""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "DataNotFoundError",
    "DivergedError",
    "LabelMappingError",
    "LearnerLostError",
    "LearnersFailedError",
    "MissingExtraError",
    "RunInUseError",
    "RunMismatchError",
]


class LabelMappingError(Exception):
    """Base of every error raised by this package."""


class ArgumentError(LabelMappingError, ValueError):
    """A value breaks a rule; the message has the argument, the rule and the value."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type; nothing is converted silently.

    It is an `ArgumentError` too: a k of 2.5 is a wrong value as much as a wrong type.
    """


class DataNotFoundError(LabelMappingError, FileNotFoundError):
    """A file, a folder or a font is not there; the message says where to get it."""


class RunMismatchError(LabelMappingError, ValueError):
    """A run folder was made with other settings or data, or a file in it is damaged."""


class RunInUseError(RunMismatchError):
    """Another process trains in the run folder; the message names it."""


class DivergedError(LabelMappingError, ArithmeticError):
    """A learner's loss is no longer finite; the message names the learner and the step."""


class LearnerLostError(LabelMappingError, RuntimeError):
    """A learner's process or machine ended before it did; the message names the learner."""


class LearnersFailedError(LabelMappingError, RuntimeError):
    """Some learners could not be trained; the message names each and its cause.

    Attributes
    ----------
    failures : dict
        The last error of each learner that failed: a site or "all" to an exception.
    """

    def __init__(self, message: str, failures: Mapping[Any, Exception]) -> None:
        super().__init__(message)
        self.failures = dict(failures)


class MissingExtraError(LabelMappingError, ImportError):
    """An optional package is absent; the message names the extra that brings it."""
