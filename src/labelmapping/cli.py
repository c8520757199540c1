"""The ``labelmapping`` command. Parses, calls, and shows; decides nothing.

Exit codes: 0 done; 2 bad input, told in one sentence; 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .errors import LabelMappingError, MissingExtraError

if TYPE_CHECKING:
    from rich.console import Console

    from .experiments.tables import Table

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: the process's) and return its exit code."""
    arguments = _parser().parse_args(argv)
    _set_up_logging(arguments.verbose)
    try:
        arguments.run(arguments)
    except (LabelMappingError, OSError) as error:
        print(f"labelmapping: error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        print("labelmapping: interrupted; start again to go on", file=sys.stderr)  # noqa: T201
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="labelmapping",
        description="Classification with very many classes: codes, learners and decoding.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log every step to stderr")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands.add_parser("demo", help="CJK characters: one-hot against two codes"))
    reproduce = commands.add_parser("reproduce", help="an experiment of the paper, run again")
    experiments = reproduce.add_subparsers(required=True, metavar="EXPERIMENT")
    _add_republic(
        experiments.add_parser("republic", help='next word in Plato\'s "Republic": table 4')
    )
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Trains one-hot, simplex and mixed heads on a small CNN, decodes with all sites and with "
        "sites left out, and writes a table and pictures. Stopped, it goes on when started again."
    )
    add = parser.add_argument
    add("--class-set", default="gb2312-1", help="gb2312-1 (3,755), uro (20,902) or uro-paper")
    add("--steps", type=int, default=2000, help="training steps (default %(default)s)")
    add("--batch-size", type=int, default=128, help="rows a step (default %(default)s)")
    add("--learning-rate", type=float, default=3e-3, help="one-cycle peak (default %(default)s)")
    add("--hidden", type=int, default=512, help="hidden layer of the codes (default %(default)s)")
    add("--sites", type=int, default=4, help="sites of both codes (default %(default)s)")
    add("--field-order", type=int, help="symbols of the simplex code (default: smallest prime)")
    add("--alphabets", type=int, nargs="+", metavar="Q", help="of the mixed code (default: primes)")
    add("--side", type=int, default=24, help="image side in pixels (default %(default)s)")
    add("--faces", nargs="+", metavar="FACE", help="known names or font files (default: all known)")
    add("--test-face", metavar="FACE", help="the face held out (default: wqy-zenhei or the last)")
    add("--seed", type=int, default=0, help="of everything drawn (default %(default)s)")
    add("--accelerator", default="auto", help="auto, cpu or gpu (default %(default)s)")
    add("--run-dir", type=Path, help="default runs/demo-CLASS_SET-STEPS")
    parser.set_defaults(run=_demo)


def _add_republic(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Trains the paper's LSTM for rows of table 4 and writes them, with training and held-out "
        "accuracy, beside the paper's. Stopped, it goes on when started again."
    )
    add = parser.add_argument
    add("--data-dir", type=Path, help="has republic.txt (default: LABELMAPPING_DATA)")
    add("--profile", default="quick", help="quick (3 rows, 2 epochs) or paper (all rows, 10)")
    add("--rows", nargs="+", metavar="ROW", help="names of rows (default: the profile's)")
    add("--epochs", type=int, help="instead of the profile's")
    add("--seed", type=int, default=0, help="of everything drawn (default %(default)s)")
    add("--accelerator", default="auto", help="auto, cpu or gpu (default %(default)s)")
    add("--run-dir", type=Path, help="default runs/republic-PROFILE")
    parser.set_defaults(run=_republic)


def _demo(arguments: argparse.Namespace) -> None:
    console = _console()
    from .experiments.demo import DemoSettings, demo_table, run_demo
    from .learners.progress import LearnerProgress

    settings = DemoSettings(
        class_set=arguments.class_set,
        steps=arguments.steps,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        hidden=arguments.hidden,
        n_sites=arguments.sites,
        field_order=arguments.field_order,
        alphabet_sizes=None if arguments.alphabets is None else tuple(arguments.alphabets),
        side=arguments.side,
        faces=None if arguments.faces is None else tuple(arguments.faces),
        test_face=arguments.test_face,
        seed=arguments.seed,
    )
    run_dir = arguments.run_dir or Path(f"runs/demo-{settings.class_set}-{settings.steps}")

    def rendering(face: str, done: int, total: int) -> None:
        if done == total:
            console.print(f"{face}: {total} characters")

    results = run_demo(
        settings,
        run_dir,
        accelerator=arguments.accelerator,
        callbacks=lambda name: [LearnerProgress(name, console)],
        rendering=rendering,
    )
    _show(console, results["experiment"] + "; accuracies in %", demo_table(results))
    console.print(
        f"Held-out face {results['held-out face']}; trained on {results['training faces']}; "
        f"chance is {results['chance']:.5f}."
    )
    _name_files(console, run_dir, ["curves.png", "sheet.png"])


def _republic(arguments: argparse.Namespace) -> None:
    console = _console()
    from .experiments.republic import reproduce_republic, table_4
    from .learners.progress import LearnerProgress

    run_dir = arguments.run_dir or Path(f"runs/republic-{arguments.profile}")
    results = reproduce_republic(
        arguments.data_dir,
        run_dir,
        profile=arguments.profile,
        rows=arguments.rows,
        epochs=arguments.epochs,
        seed=arguments.seed,
        accelerator=arguments.accelerator,
        callbacks=lambda row, site: [LearnerProgress(f"{row}, site {site}", console)],
    )
    _show(console, "Table 4: next word in Plato's Republic", table_4(results))
    console.print(
        f"The most frequent word is {results['most_frequent_word_share']:.4f} of the held-out "
        "words."
    )
    _name_files(console, run_dir, ["curves.png"])


def _console() -> Console:
    """Standard error, where progress goes."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise MissingExtraError(
            "the command needs the experiments' packages: pip install 'labelmapping[experiments]'"
        ) from error
    return Console(stderr=True)


def _show(console: Console, title: str, table: Table) -> None:
    """The table on standard output, where a pipe can take it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid

    header, lines = table
    grid = Grid(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for n, name in enumerate(header):
        grid.add_column(name, justify="left" if n == 0 else "right")
    for line in lines:
        grid.add_row(*line)
    out = Console()
    # A pipe has no width of its own: give the table all it needs.
    (out if out.is_terminal else Console(width=200)).print(grid)
    console.print()


def _name_files(console: Console, run_dir: Path, pictures: Sequence[str]) -> None:
    names = ["results.json", "results.csv", "results.md", *pictures]
    console.print(f"Saved in {run_dir}: {', '.join(names)}")


def _set_up_logging(verbose: bool) -> None:
    handler = logging.StreamHandler()
    # Lightning's notes and advice are not about the user's run; its warnings may be.
    handler.addFilter(
        lambda record: record.name.startswith("labelmapping") or record.levelno >= logging.WARNING
    )
    logging.basicConfig(
        format="%(levelname)s %(name)s: %(message)s", handlers=[handler], level=logging.WARNING
    )
    logging.getLogger("labelmapping").setLevel(logging.INFO if verbose else logging.WARNING)
