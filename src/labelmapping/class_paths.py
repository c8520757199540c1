"""A class that the user names by its import path, and the arguments for it."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ArgumentError, MissingExtraError

__all__ = ["ClassChoice", "class_parser", "one_sentence"]

# Where a bare name is looked for.
OWN = ("labelmapping.data_modules", "labelmapping.nn")
FIT_NEEDS = "labelmapping fit needs jsonargparse: pip install 'labelmapping[fit]'"


@dataclass(frozen=True)
class ClassChoice:
    """A class and arguments for it, in Lightning's terms.

    Attributes
    ----------
    name : str
        The setting that it is: "data" or "trunk".
    class_path : str
        ``package.module.Class`` (or ``package.module:Class``), or the name of one of this
        package's own data modules or trunks.
    init_args : mapping
        Keyword arguments as JSON values.
    """

    name: str
    class_path: str
    init_args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """``module:Class``."""
        if ":" in self.class_path:
            return self.class_path
        module, _, name = self.class_path.rpartition(".")
        if not module:
            for own in OWN:
                if name in getattr(importlib.import_module(own), "__all__", ()):
                    return f"{own}:{name}"
        return f"{module}:{name}"

    def load(self, base: type) -> type[Any]:
        """The class, checked to be a kind of `base`."""
        module, _, name = self.path.partition(":")
        rule = f"{self.name}.class_path must be the import path of a {base.__name__}"
        if not module:
            own = [name for place in OWN for name in importlib.import_module(place).__all__]
            raise ArgumentError(f"{rule}, or one of {', '.join(own)}; got {self.class_path!r}")
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever the user's file raises
            raise ArgumentError(
                f"{rule}, got {self.class_path!r}: {type(error).__name__}: {error}"
            ) from error
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ArgumentError(f"{rule}, and {self.class_path!r} is none")
        return found

    def arguments(self, base: type, fill: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The arguments that are given, checked against the class's signature; JSON values.

        Parameters
        ----------
        fill : mapping
            What makes the values of parameters that the class has and that are not given.

        Raises
        ------
        ArgumentError
            One is missing, unknown, or of the wrong type.
        """
        found = self.load(base)
        parameters = inspect.signature(found).parameters
        missing = {k for k in fill if k in parameters and k not in self.init_args}
        parser = class_parser(found, missing)
        key = f"{self.name}.init_args"
        try:
            parser.parse_object(dict(self.init_args))
            parsed = parser.parse_object(dict(self.init_args), defaults=False).as_dict()
        except Exception as error:  # its own, TypeError, ValueError, ...
            raise ArgumentError(f"{key} of {found.__name__}: {one_sentence(error)}") from error
        try:
            values = json.loads(json.dumps(parsed, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"{key} of {found.__name__} must be JSON values, which run folders and workers "
                f"can have, as the class takes them: {error}"
            ) from error
        return {**values, **{name: fill[name]() for name in sorted(missing)}}


def class_parser(found: type, skip: set[str]) -> Any:
    """A jsonargparse parser of a class's arguments: what ``--help`` of it is."""
    try:
        from jsonargparse import ArgumentParser
    except ImportError as error:
        raise MissingExtraError(FIT_NEEDS) from error
    parser = ArgumentParser(prog=found.__name__, exit_on_error=False, add_help=False)
    parser.add_class_arguments(found, skip=skip, fail_untyped=False)
    return parser


def one_sentence(error: Exception) -> str:
    """What a parser says, without its lines and classes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)
    given = [line for line in lines if line.startswith("Given value: ")]
    subtypes = [line for line in lines if line.startswith("Subtypes: ")]
    if given and subtypes:
        kinds = subtypes[0].removeprefix("Subtypes: [").removesuffix("]")
        text = f"{lines[0]} must be one of {kinds}; got {given[0].removeprefix('Given value: ')}"
    text = re.sub(r"Expected a (.*)\. Got value:", r"must be \1; got", text)
    text = re.sub(r"(?:typing\.)?Literal\[(.*?)\]", r"one of \1", text)
    for word, plain in (("<class '", ""), ("'>", ""), ("NoneType", "null"), ("typing.", "")):
        text = text.replace(word, plain)
    return text.replace('Parser key "', '"').rstrip(".")
