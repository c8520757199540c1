"""Reads the settings of ``labelmapping fit``, ``evaluate`` and ``predict``: a file and options."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentError as ParserError
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

from .class_paths import FIT_NEEDS, ClassChoice, class_parser, one_sentence
from .errors import ArgumentError, MissingExtraError
from .fitting import CodeSettings, FitSettings, RaySettings, TrainingSettings

__all__ = ["fit_parser", "print_class_help", "read_settings"]

EPILOG = """\
Ready-made data: ImageFolders (a folder a class), ParquetRows (a label column),
TokenSequences (next token or item). Trunks: SmallCnn, Mlp, ThreeConvCnn, NextWordLstm,
NextItemAttention, or your own. What a class takes: labelmapping fit --about CLASS.

A settings file, photos.yaml:
  data:
    class_path: ImageFolders
    init_args: {root: photos, side: 24, channels: grey, test_root: test}
  trunk:
    class_path: SmallCnn
  code: {family: learned, n_sites: 6}
  training: {epochs: 10, head_options: {hidden: 512}}
  run_dir: runs/photos

Then, stopped and started again as often as need be:
  labelmapping fit --config photos.yaml --executor process
  labelmapping evaluate --config photos.yaml --k 1 10
  labelmapping predict --config photos.yaml --data.init_args.predict_root new --output new.csv
Any setting of the file can be given as an option, which then wins; --print_config shows them all.
"""
GROUPS = ("data", "trunk", "code", "training", "ray")
RUN_SETTINGS = [f.name for f in fields(FitSettings) if f.name not in GROUPS]
CLASSES = {
    "data": "a LightningDataModule: an import path, or one of the names below",
    "trunk": "a module with out_features, likewise",
}


def fit_parser(command: str, description: str) -> Any:
    """A jsonargparse parser of the settings; commands add their own options to it."""
    try:
        from jsonargparse import ArgumentParser, DefaultHelpFormatter
    except ImportError as error:
        raise MissingExtraError(FIT_NEEDS) from error
    import argparse

    class Formatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
        """Keeps the lines of the epilog."""

    parser = ArgumentParser(
        prog=f"labelmapping {command}",
        description=description,
        epilog=EPILOG,
        formatter_class=Formatter,
        exit_on_error=False,
    )
    add = parser.add_argument
    add("--config", action="config", help="a file of settings (YAML or JSON)")
    for name, help_text in CLASSES.items():
        group = parser.add_argument_group(name)
        group.add_argument(f"--{name}.class_path", type=str, required=True, help=help_text)
        group.add_argument(
            f"--{name}.init_args", type=dict[str, Any], default={}, help="its arguments"
        )
    parser.add_class_arguments(CodeSettings, "code")
    parser.add_class_arguments(TrainingSettings, "training")
    parser.add_class_arguments(RaySettings, "ray")
    run = parser.add_argument_group("run")
    run.add_argument("--run_dir", "--run-dir", type=str, required=True, help="path or URL")
    run.add_argument("--seed", type=int, default=0, help="of everything drawn")
    run.add_argument(
        "--executor",
        type=Literal["serial", "process", "ray"],
        default="serial",
        help="where sites run",
    )
    run.add_argument("--workers", type=int | None, default=None, help="processes at a time")
    run.add_argument(
        "--ray_address", "--ray-address", type=str | None, default=None, help='a cluster, or "auto"'
    )
    run.add_argument("--retries", type=int, default=2, help="of a learner that failed")
    run.add_argument("--accelerator", type=str, default="auto", help="auto, cpu or gpu")
    run.add_argument(
        "--trainer",
        type=dict[str, Any],
        default={},
        help="of Lightning, inside a site: strategy, devices, num_nodes",
    )
    return parser


def read_settings(parser: Any, arguments: Sequence[str]) -> tuple[FitSettings, Any]:
    """The settings, and all that was parsed.

    Raises
    ------
    ArgumentError
        A setting is missing, unknown or of the wrong type; one sentence.
    """
    _find_own_classes()
    try:
        found = parser.parse_args(list(arguments))
    except (ParserError, TypeError, ValueError, KeyError) as error:
        raise ArgumentError(one_sentence(error)) from error
    values = found.as_dict()
    settings = FitSettings(
        data=ClassChoice("data", **values["data"]),
        trunk=ClassChoice("trunk", **values["trunk"]),
        code=CodeSettings(**values["code"]),
        training=TrainingSettings(**values["training"]),
        ray=RaySettings(**values["ray"]),
        **{name: values[name] for name in RUN_SETTINGS},
    )
    return settings, found


def print_class_help(path: str) -> None:
    """What a data module or a trunk takes, on standard output."""
    _find_own_classes()
    class_parser(ClassChoice("--about", path).load(object), set()).print_help()


def _find_own_classes() -> None:
    """Let classes be imported from the working folder, as ``python -m`` does."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
