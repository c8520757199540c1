"""The ``labelmapping`` command. Parses, calls, and shows; decides nothing.

Exit codes: 0 done; 2 bad input, told in one sentence; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .errors import ArgumentError, DataNotFoundError, LabelMappingError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from .experiments.tables import Table
    from .mappings import LabelMapping
    from .mappings.design import Choice
    from .mappings.properties import CodeProperties

__all__ = ["main"]

EXPERIMENTS_NEED = (
    "the command needs the experiments' packages: pip install 'labelmapping[experiments]'"
)
TABLES_NEED = "a table needs rich: pip install 'labelmapping[train]', or ask for --json"
# What a line of a table has room for.
SHOWN_ALPHABETS = 16  # characters
SHOWN_DISTANCES = 8


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
    _add_design(commands.add_parser("design", help="which code to use for so many classes"))
    _add_inspect(commands.add_parser("inspect", help="what the code of a recipe is worth"))
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


def _add_design(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Ranks the codes that meet a request, with what they guarantee and cost beside one-hot, "
        "and prints the recipe of the first. The order: smaller than one-hot; then, with "
        "--max-parameters, the largest distance, else dimension 2, 3, 4, ..., 1; then the "
        "fewest parameters."
    )
    add = parser.add_argument
    add("--classes", type=int, required=True, metavar="N", help="number of classes")
    add("--sites", type=int, metavar="n", help="sites exactly (default: as few as will do)")
    add("--distance", type=int, metavar="d", help="sites where any two classes differ, at least")
    add("--lost-sites", type=int, metavar="m", help="learners that may be lost")
    add("--max-alphabet", type=int, metavar="q", help="most symbols a site may have")
    add("--max-parameters", type=int, metavar="P", help="most parameters the head may have")
    add("--in-features", type=int, default=512, metavar="D", help="default %(default)s")
    add("--hidden", type=int, nargs="+", metavar="H", help="hidden layers of the head")
    add("--family", nargs="+", metavar="F", help="mixed, simplex, one-hot (default: first two)")
    add("--trunk-parameters", type=int, metavar="T", help="warn where they cannot hold the code")
    add("--top", type=int, default=8, metavar="t", help="most codes shown (default %(default)s)")
    add("--json", action="store_true", help="a JSON document with all recipes instead")
    parser.set_defaults(run=_design)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Distances, balance and independence of the code of a recipe, and how each is known. "
        "Codes without structure are counted, for a minute at most, or else sampled."
    )
    add = parser.add_argument
    add("recipe", type=Path, help="JSON of mapping.to_config(), or the run.json of a run")
    add("--prototypes", type=Path, help="array of floats (N, d), .npy: tells how natural sites are")
    add("--json", action="store_true", help="a JSON document instead, with all pairs of sites")
    parser.set_defaults(run=_inspect)


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


def _design(arguments: argparse.Namespace) -> None:
    from .mappings.design import design

    console = None if arguments.json else _console(TABLES_NEED)
    hidden = arguments.hidden or [0]
    request = {
        "n_classes": arguments.classes,
        "sites": arguments.sites,
        "distance": arguments.distance,
        "lost_sites": arguments.lost_sites,
        "max_alphabet": arguments.max_alphabet,
        "max_parameters": arguments.max_parameters,
        "in_features": arguments.in_features,
        "hidden": hidden if len(hidden) > 1 else hidden[0],
        "family": arguments.family,
        "trunk_parameters": arguments.trunk_parameters,
        "top": arguments.top,
    }
    choices = design(**request)
    if console is None:
        _write_json({"request": request, "choices": [choice.to_dict() for choice in choices]})
        return
    best = choices[0]
    _say(
        f"{best.n_classes:,} classes from {arguments.in_features:,} features: one-hot has "
        f"{_short(best.one_hot_parameters)} parameters ({_short(best.one_hot_bytes, 'B')}); "
        f"{_short(best.bits_to_hold, 'bit')} to hold. Any k of n sites tell the class."
    )
    _show(console, "", _choices_table(choices))
    for text in _merged_warnings(choices):
        _say(text)
    _say("Recipe of the first:")
    _say(json.dumps(best.recipe()))


def _choices_table(choices: Sequence[Choice]) -> Table:
    header = (
        "code",
        "alphabets",
        "any",
        "distance",
        "corrects",
        "may\nlose",
        "room\nfor",
        "head",
        "vs\none-hot",
    )
    return header, [
        (
            f"{number} {choice.family}",
            _alphabets(choice.alphabet_sizes),
            f"{choice.dimension} of {choice.n_sites}",
            str(choice.min_distance),
            str(choice.errors_corrected),
            str(choice.sites_that_may_be_lost),
            _exact(choice.capacity),
            _short(choice.head_parameters),
            f"1/{_exact(choice.ratio)}" if choice.ratio >= 1.5 else f"{1 / choice.ratio:.2g} x",
        )
        for number, choice in enumerate(choices, start=1)
    ]


def _merged_warnings(choices: Sequence[Choice]) -> list[str]:
    """Each warning once, with the numbers of the choices it is about."""
    about: dict[str, list[int]] = {}
    for number, choice in enumerate(choices, start=1):
        for text in choice.warnings:
            about.setdefault(text, []).append(number)
    return [
        f"{'all' if len(about[text]) == len(choices) else ', '.join(map(str, about[text]))}: {text}"
        for text in about
    ]


def _inspect(arguments: argparse.Namespace) -> None:
    from .mappings.properties import properties

    console = None if arguments.json else _console(TABLES_NEED)
    mapping = _read_mapping(arguments.recipe)
    prototypes = None if arguments.prototypes is None else _read_array(arguments.prototypes)
    found = properties(mapping, prototypes=prototypes)
    if console is None:
        _write_json(
            {
                "recipe": mapping.to_config(),
                "capacity": mapping.capacity,
                "properties": found.to_dict(),
            }
        )
        return
    title = f"{mapping.kind} code of {mapping.n_classes:,} classes"
    _show(console, title, _properties_table(mapping, found))


def _read_mapping(path: Path) -> LabelMapping:
    """The mapping of a recipe, which may lie in a learner's recipe or in a run.json."""
    from .mappings import LabelMapping

    if not path.is_file():
        raise DataNotFoundError(
            f"{path} is no file; it must be the JSON of mapping.to_config(), or a run.json"
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} must be JSON: {error}") from error
    for name in ("recipe", "mapping"):
        if isinstance(value, Mapping) and "kind" not in value:
            value = value.get(name, value)
    if not isinstance(value, Mapping) or "kind" not in value:
        raise ArgumentError(
            f"{path} must hold the recipe of a mapping, as mapping.to_config() gives it, alone "
            "or in a run.json"
        )
    try:
        return LabelMapping.from_config(value)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from error


def _read_array(path: Path) -> NDArray[np.generic]:
    """The array of an .npy file; one that would have to be unpickled is refused."""
    import numpy

    if not path.is_file():
        raise DataNotFoundError(f"{path} is no file; it must be an array as numpy.save writes it")
    try:
        array = numpy.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ArgumentError(f"{path} must be an array of numbers (.npy): {error}") from error
    if not isinstance(array, numpy.ndarray):
        raise ArgumentError(f"{path} must hold one array (.npy), got {', '.join(array.files)}")
    return array


def _properties_table(mapping: LabelMapping, found: CodeProperties) -> Table:
    """One property a line, and how it is known."""
    known_by = found.distance_known_by
    spare = mapping.capacity - found.n_classes
    lines = [
        ("alphabets", _alphabets(found.alphabet_sizes), ""),
        ("class from", f"any {found.dimension} of {found.n_sites} sites", ""),
        ("room for", f"{mapping.capacity:,} ({spare:,} free)", ""),
        ("distance", str(found.min_distance), known_by),
        ("below the best possible", str(found.singleton_gap), known_by),
        ("wrong sites corrected", str(found.errors_corrected), known_by),
        ("sites that may be lost", str(found.sites_that_may_be_lost), known_by),
        ("pairs with one codeword", _collisions(found), known_by),
    ]
    if found.mean_distance is not None:
        lines.append(("mean distance", f"{found.mean_distance:.6g}", known_by))
    shares = [(d, share) for d, share in enumerate(found.distance_shares) if share]
    for d, share in shares[:SHOWN_DISTANCES]:
        lines.append((f"pairs that differ at {d}", f"{100 * share:.4g} %", known_by))
    if rest := shares[SHOWN_DISTANCES:]:
        share = 100 * sum(share for _, share in rest)
        lines.append((f"pairs that differ at {rest[0][0]} or more", f"{share:.4g} %", known_by))
    if found.symbol_counts is not None:
        fewest = min(low for low, _ in found.symbol_counts)
        most = max(high for _, high in found.symbol_counts)
        balance = max(found.balance or (1.0,))
        known = str(found.balance_known_by)
        lines.append(("classes of a symbol", f"{fewest:,} to {most:,}", known))
        lines.append(("balance of the worst site", f"{balance:.4g}", known))
    if found.entropy is not None:
        low, high = min(found.entropy), max(found.entropy)
        lines.append(("bits a site", f"{low:.4g} to {high:.4g}", str(found.balance_known_by)))
    shared = found.largest_mutual_information
    if shared is not None:
        known = str(found.information_known_by)
        lines.append(("bits two sites share, at most", f"{shared:.3g}", known))
    if found.naturalness is not None:
        low, high = min(found.naturalness), max(found.naturalness)
        lines.append(("variance between symbols", f"{low:.4g} to {high:.4g}", "prototypes"))
    return ("property", "value", "known by"), lines


def _collisions(found: CodeProperties) -> str:
    count = "not known" if found.collisions is None else f"{found.collisions:,}"
    if found.collision is None:
        return count
    return f"{count}: classes {found.collision[0]} and {found.collision[1]}"


def _alphabets(sizes: Sequence[int]) -> str:
    """149 x 4 where they are equal; else all, or the first and the last."""
    if len(set(sizes)) == 1:
        return f"{sizes[0]} x {len(sizes)}"
    text = " ".join(map(str, sizes))
    return text if len(text) <= SHOWN_ALPHABETS else f"{sizes[0]} ... {sizes[-1]}"


def _short(value: float, unit: str = "", digits: int = 3) -> str:
    """A few digits and a prefix: 306 k, 1.22 MB."""
    rounded = float(f"{value:.{digits}g}")
    for power, prefix in reversed(list(enumerate(("k", "M", "G", "T", "P", "E", "Z"), start=1))):
        if rounded >= 1000**power:
            return f"{rounded / 1000**power:.{digits}g} {prefix}{unit}"
    return f"{rounded:.{digits}g} {unit}".rstrip()


def _exact(value: float) -> str:
    """All digits up to a million, then four and a prefix."""
    return f"{value:,.0f}" if value < 1e6 else _short(value, digits=4)


def _console(needs: str = EXPERIMENTS_NEED) -> Console:
    """Standard error, where progress goes."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise MissingExtraError(needs) from error
    return Console(stderr=True)


def _say(text: str) -> None:
    """A line on standard output, never broken, so that it can be copied."""
    from rich.console import Console

    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _write_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _show(console: Console, title: str, table: Table) -> None:
    """The table on standard output, where a pipe can take it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid

    header, lines = table
    grid = Grid(
        title=title or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for n, name in enumerate(header):
        # Where a terminal is too narrow, figures go on below and lose no digit.
        grid.add_column(name, justify="left" if n == 0 else "right", overflow="fold")
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
