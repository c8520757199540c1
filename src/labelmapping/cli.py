"""The ``labelmapping`` command. Parses, calls, and shows; decides nothing.

Exit codes: 0 done; 2 bad input, told in one sentence; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .errors import LabelMappingError
from .terminal import open_console, say, show, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from .experiments.tables import Table
    from .mappings import LabelMapping
    from .mappings.design import Choice
    from .mappings.properties import CodeProperties

__all__ = ["main"]

CONVEX = "section 3: are N random centres in convex position, and does a softmax need it"
TABLES_NEED = "a table needs rich: pip install 'labelmapping[train]', or ask for --json"
# Commands that take a file of settings, and all of their options from it.
SETTINGS_COMMANDS = {
    "fit": "train learners on your own data",
    "calibrate": "a temperature for their probabilities, by held-out rows",
    "evaluate": "how good they are on test rows",
    "predict": "their answers for new rows",
}
PAPER_EXPERIMENTS = {
    "cifar100": "CIFAR-100 with a simple CNN: figures 5 to 7",
    "cjk": "CJK characters: tables 1 to 3",
    "republic": 'next word in Plato\'s "Republic": table 4',
}
# What a line of a table has room for.
SHOWN_ALPHABETS = 16  # characters
SHOWN_DISTANCES = 8


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: the process's) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    command = next((n for n, word in enumerate(given) if not word.startswith("-")), len(given))
    rest: list[str] = []
    if given[command : command + 1] and given[command] in SETTINGS_COMMANDS:
        given, rest = given[: command + 1], given[command + 1 :]
    arguments = _parser().parse_args(given, argparse.Namespace(rest=rest))
    _set_up_logging(arguments.verbose)
    try:
        arguments.run(arguments)
    except BrokenPipeError:  # whoever read what is printed has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
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
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_demo(commands.add_parser("demo", help="CJK characters: one-hot against two codes"))
    reproduce = commands.add_parser("reproduce", help="an experiment of the paper, run again")
    reproduce.add_argument("--list", action="store_true", help="all rows, and stop")
    reproduce.set_defaults(run=_reproduce_nothing, parser=reproduce)
    experiments = reproduce.add_subparsers(metavar="EXPERIMENT")
    for name, help_text in PAPER_EXPERIMENTS.items():
        _add_experiment(experiments.add_parser(name, help=help_text), name)
    _add_convex(experiments.add_parser("convex", help=CONVEX))
    for name, help_text in SETTINGS_COMMANDS.items():
        # Their options are read by another parser, which has the settings' types.
        commands.add_parser(name, help=help_text, add_help=False).set_defaults(run=_with_settings)
    _add_report(commands.add_parser("report", help="several runs of experiments on one HTML page"))
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


def _add_experiment(parser: argparse.ArgumentParser, name: str) -> None:
    parser.description = (
        f"{PAPER_EXPERIMENTS[name]}. Trains what rows of the table need, and writes the table and "
        "curves after each, beside the paper's figures. Stopped, it goes on when started again."
    )
    add = parser.add_argument
    # Without a default, which would undo that of the command above.
    add("--list", action="store_true", default=argparse.SUPPRESS, help="its rows, and stop")
    add("--profile", default="quick", help="quick, cpu or paper (default %(default)s)")
    add("--rows", nargs="+", metavar="ROW", help="names from --list (default: the profile's)")
    add("--seeds", type=int, nargs="+", default=[0], metavar="S", help="one or more (default 0)")
    add("--epochs", type=int, help="instead of the profile's")
    add("--steps", type=int, help="of an epoch, instead of the profile's")
    add("--learning-rate", type=float, metavar="RATE", help="instead of the profile's")
    add("--precision", help="of training: 32-true (the profiles'), bf16-mixed or 16-mixed")
    if name != "cjk":
        add("--data-dir", type=Path, help="has the data (default: LABELMAPPING_DATA)")
    add("--accelerator", default="auto", help="auto, cpu or gpu (default %(default)s)")
    add("--run-dir", type=Path, help=f"default runs/{name}-PROFILE")
    parser.set_defaults(run=_reproduce, experiment=name, data_dir=None)


def _add_convex(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measures how often random centres are in convex position, and whether softmax layers "
        "need it: computed ones, trained ones, and (--profile cpu) those of small CNNs on CJK "
        "characters by the width of their features. Stopped, the networks go on when started "
        "again."
    )
    add = parser.add_argument
    add("--list", action="store_true", default=argparse.SUPPRESS, help="what it is, and stop")
    add("--profile", default="quick", help="quick or cpu (default %(default)s)")
    add("--seed", type=int, default=0, help="of everything drawn (default %(default)s)")
    add("--accelerator", default="auto", help="of the CNNs: auto, cpu or gpu (default %(default)s)")
    add("--run-dir", type=Path, help="default runs/convex-PROFILE")
    parser.set_defaults(run=_convex)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Merges the results.json of run folders into one HTML page that needs nothing beside it: "
        "tables with the paper's numbers, the spread over seeds, and the pictures."
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="folders of demo or reproduce")
    add("--output", type=Path, default=Path("report.html"), help="default %(default)s")
    parser.set_defaults(run=_report)


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


def _with_settings(arguments: argparse.Namespace) -> None:
    from .fit_commands import COMMANDS

    COMMANDS[arguments.command](arguments.rest)


def _demo(arguments: argparse.Namespace) -> None:
    console = open_console()
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
    show(console, results["experiment"] + "; accuracies in %", demo_table(results))
    console.print(
        f"Held-out face {results['held-out face']}; trained on {results['training faces']}; "
        f"chance is {results['chance']:.5f}."
    )
    _name_files(console, run_dir, ["curves.png", "sheet.png"])


def _reproduce_nothing(arguments: argparse.Namespace) -> None:
    if not arguments.list:
        arguments.parser.error("the following arguments are required: EXPERIMENT")
    for name in PAPER_EXPERIMENTS:
        _list_rows(name)
    say(f"convex: {CONVEX}")


def _list_rows(name: str) -> None:
    open_console()  # or the extra that is missing
    from .experiments.rows import load_experiment

    experiment = load_experiment(name)
    for row in experiment.table:
        say(f"{name} {row}: {experiment.summary(row)}")


def _reproduce(arguments: argparse.Namespace) -> None:
    if arguments.list:
        _list_rows(arguments.experiment)
        return
    console = open_console()
    from .experiments.results import results_table
    from .experiments.rows import load_experiment
    from .experiments.runner import reproduce
    from .learners.progress import LearnerProgress

    def drawing(name: str, done: int, total: int) -> None:
        if done == total:
            console.print(f"{name}: {total} images")

    def callbacks(row: str, seed: int, learner: int | str) -> list[LearnerProgress]:
        name = row if seed == 0 else f"{row}, seed {seed}"
        return [LearnerProgress(f"{name}, site {learner}", console)]

    experiment = load_experiment(arguments.experiment)
    run_dir = arguments.run_dir or Path(f"runs/{experiment.name}-{arguments.profile}")
    results = reproduce(
        experiment,
        run_dir,
        data_dir=arguments.data_dir,
        profile=arguments.profile,
        rows=arguments.rows,
        epochs=arguments.epochs,
        steps=arguments.steps,
        learning_rate=arguments.learning_rate,
        precision=arguments.precision,
        seeds=arguments.seeds,
        accelerator=arguments.accelerator,
        callbacks=callbacks,
        progress=drawing,
    )
    show(console, experiment.title, results_table(results, results["report"][-2:]))
    for fact in results["facts"]:
        console.print(f"{fact}: {results[fact]}", highlight=False)
    pictures = [f"{figure['name']}.png" for figure in results["figures"]]
    _name_files(console, run_dir, [name for name in pictures if (run_dir / name).exists()])


def _convex(arguments: argparse.Namespace) -> None:
    if arguments.list:
        say(f"convex: {CONVEX}")
        return
    console = open_console()
    from .experiments.convex import convex_tables, reproduce_convex
    from .learners.progress import LearnerProgress

    run_dir = arguments.run_dir or Path(f"runs/convex-{arguments.profile}")
    results = reproduce_convex(
        run_dir,
        profile=arguments.profile,
        seed=arguments.seed,
        accelerator=arguments.accelerator,
        callbacks=lambda width: [LearnerProgress(f"d = {width}", console)],
        progress=lambda line: console.print(line, highlight=False),
    )
    for title, table in convex_tables(results).items():
        show(console, title, table)
    _name_files(console, run_dir, ["clusters.png", "positions.png", "layers.png"])


def _report(arguments: argparse.Namespace) -> None:
    console = open_console()
    from .experiments.report import write_report

    write_report(arguments.runs, arguments.output)
    console.print(f"Saved {arguments.output}", highlight=False)


def _design(arguments: argparse.Namespace) -> None:
    from .mappings.design import design

    console = None if arguments.json else open_console(TABLES_NEED)
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
        write_json({"request": request, "choices": [choice.to_dict() for choice in choices]})
        return
    best = choices[0]
    say(
        f"{best.n_classes:,} classes from {arguments.in_features:,} features: one-hot has "
        f"{_short(best.one_hot_parameters)} parameters ({_short(best.one_hot_bytes, 'B')}); "
        f"{_short(best.bits_to_hold, 'bit')} to hold. Any k of n sites tell the class."
    )
    show(console, "", _choices_table(choices))
    for text in _merged_warnings(choices):
        say(text)
    say("Recipe of the first:")
    say(json.dumps(best.recipe()))


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
    from .input_files import read_array, read_recipe
    from .mappings.properties import properties

    console = None if arguments.json else open_console(TABLES_NEED)
    mapping = read_recipe(arguments.recipe)
    prototypes = None if arguments.prototypes is None else read_array(arguments.prototypes)
    found = properties(mapping, prototypes=prototypes)
    if console is None:
        write_json(
            {
                "recipe": mapping.to_config(),
                "capacity": mapping.capacity,
                "properties": found.to_dict(),
            }
        )
        return
    title = f"{mapping.kind} code of {mapping.n_classes:,} classes"
    show(console, title, _properties_table(mapping, found))


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
