"""The commands ``labelmapping fit`` and what follows it: parse, call, and show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .atomic import write_json as write_json_file
from .errors import ArgumentError
from .terminal import open_console, show, write_json

if TYPE_CHECKING:
    from .learners import RunFolder
    from .scoring import Evaluation
    from .terminal import Table

__all__ = ["COMMANDS"]

FIT_NEEDS = "the command needs its packages: pip install 'labelmapping[fit]'"
# Sites whose accuracies a line has room for.
SHOWN_SITES = 12


def fit_command(arguments: Sequence[str]) -> None:
    """``labelmapping fit``."""
    console = open_console(FIT_NEEDS)
    from .fit_settings import fit_parser, print_class_help, read_settings
    from .fitting import fit
    from .learners.progress import LiveSites

    if arguments[:1] == ["--about"]:
        if len(arguments) != 2:
            raise ArgumentError("--about must be followed by a class: labelmapping fit --about X")
        print_class_help(arguments[1])
        return
    parser = fit_parser(
        "fit",
        "Trains a learner a site (or one for all) on your data. Stopped, it goes on when it is "
        "started again, and trains what is missing.",
    )
    settings, _ = read_settings(parser, arguments)
    with LiveSites(console) as live:
        run = fit(settings, watch=live)
    show(console, f"{run.path}: {run.recipe.mapping!r}", _learners_table(run))


def calibrate_command(arguments: Sequence[str]) -> None:
    """``labelmapping calibrate``."""
    console = open_console(FIT_NEEDS)
    from .fit_settings import fit_parser, read_settings
    from .fitting import calibrate_run

    parser = fit_parser(
        "calibrate",
        "The temperature at which a run's probabilities fit the validation rows of its data "
        "module: for evaluate and predict, with the same sites.",
    )
    group = parser.add_argument_group("calibrate")
    _add_answering(group)
    group.add_argument(
        "--max_rows", "--max-rows", type=int, default=2000, help="so many of them at most"
    )
    group.add_argument("--json", action="store_true", help="a JSON document instead of a table")
    settings, found = read_settings(parser, arguments)
    result = calibrate_run(settings, found.max_rows, sites=found.sites, device=found.device)
    if found.json:
        write_json(result.to_dict())
        return
    show(
        console,
        f"{settings.run_dir}: {result.rows:,} rows",
        (
            ("temperature", "log-loss, nats", "perplexity"),
            [
                (f"{temperature:.4g}", f"{loss:.4f}", _perplexity(loss))
                for temperature, loss in (
                    (1.0, result.log_loss_at_1),
                    (result.temperature, result.log_loss),
                )
            ],
        ),
    )


def evaluate_command(arguments: Sequence[str]) -> None:
    """``labelmapping evaluate``."""
    console = open_console(FIT_NEEDS)
    from .fit_settings import fit_parser, read_settings
    from .fitting import evaluate_run

    parser = fit_parser("evaluate", "Accuracy of a run on the test rows of its data module.")
    group = parser.add_argument_group("evaluate")
    _add_answering(group)
    _add_temperature(group)
    group.add_argument(
        "--k", type=int, nargs="+", default=[1, 5], help="accuracies among the k best"
    )
    group.add_argument(
        "--no_calibration",
        "--no-calibration",
        action="store_true",
        help="leave out log-loss and calibration, which sum over all classes",
    )
    group.add_argument("--json", action="store_true", help="a JSON document instead of tables")
    group.add_argument("--output", type=str | None, default=None, help="also to this .json file")
    settings, found = read_settings(parser, arguments)
    if found.output is not None and Path(found.output).suffix != ".json":
        raise ArgumentError(f"output must end in .json, got {found.output}")
    result = evaluate_run(
        settings,
        found.k,
        sites=found.sites,
        device=found.device,
        calibration=not found.no_calibration,
        temperature=found.temperature,
    )
    if found.output is not None:
        write_json_file(Path(found.output), result.to_dict())
    if found.json:
        write_json(result.to_dict())
        return
    show(console, f"{settings.run_dir}: {result.rows:,} rows", _evaluation_table(result))
    if result.bins:
        show(console, "Calibration", _calibration_table(result))


def predict_command(arguments: Sequence[str]) -> None:
    """``labelmapping predict``."""
    console = open_console(FIT_NEEDS)
    from .fit_settings import fit_parser, read_settings
    from .fitting import predict_run

    parser = fit_parser("predict", "The best labels of the rows that the data module predicts.")
    group = parser.add_argument_group("predict")
    _add_answering(group)
    _add_temperature(group)
    group.add_argument("--k", type=int, default=1, help="how many labels a row")
    group.add_argument(
        "--probabilities", action="store_true", help="instead of scores, over all classes"
    )
    group.add_argument(
        "--output", type=str | None, default=None, help=".csv or .jsonl (default: CSV, printed)"
    )
    settings, found = read_settings(parser, arguments)
    output = None if found.output is None else Path(found.output)
    rows = predict_run(
        settings,
        output,
        found.k,
        sites=found.sites,
        device=found.device,
        probabilities=found.probabilities,
        temperature=found.temperature,
    )
    console.print(f"{rows:,} rows{'' if output is None else f' in {output}'}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "fit": fit_command,
    "calibrate": calibrate_command,
    "evaluate": evaluate_command,
    "predict": predict_command,
}


def _add_answering(group: Any) -> None:
    group.add_argument(
        "--sites",
        type=int,
        nargs="+",
        default=None,
        help="answer with these sites alone (default: all that are trained)",
    )
    group.add_argument("--device", type=str, default="cpu", help="where the networks run")


def _add_temperature(group: Any) -> None:
    group.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="divides the sites' log-probs; labelmapping calibrate finds one",
    )


def _learners_table(run: RunFolder) -> Table:
    lines = []
    for learner in run.recipe.learners():
        report = run.report(learner)
        last = run.metrics(learner)[-1]
        accuracies = [v for k, v in last.items() if k.startswith("held_out_accuracy_")]
        lines.append(
            (
                str(learner),
                f"{report.parameters:,}",
                str(report.epochs),
                f"{report.seconds:.0f}",
                f"{last.get('train_loss', math.nan):.4f}",
                " ".join(f"{100 * a:.1f}" for a in accuracies[:SHOWN_SITES]),
            )
        )
    header = ("site", "parameters", "epochs", "seconds", "train loss", "held-out site accuracy, %")
    return header, lines


def _evaluation_table(result: Evaluation) -> Table:
    lines = [(f"top-{k}", f"{100 * share:.2f} %") for k, share in result.top.items()]
    for start in range(0, len(result.sites), SHOWN_SITES):
        part = slice(start, start + SHOWN_SITES)
        lines.append(
            (
                f"sites {' '.join(map(str, result.sites[part]))}",
                " ".join(f"{100 * a:.1f}" for a in result.site_accuracies[part]),
            )
        )
    if result.log_loss is not None:
        lines.append(("log-loss, nats", f"{result.log_loss:.4f}"))
        lines.append(("perplexity", _perplexity(result.log_loss)))
    if result.calibration_error is not None:
        lines.append(("calibration error", f"{100 * result.calibration_error:.2f} points"))
    if result.unknown_rows:
        lines.append(("rows of unknown classes", f"{result.unknown_rows:,}"))
    return ("measure", "value"), lines


def _perplexity(log_loss: float) -> str:
    return f"{math.exp(min(log_loss, 700)):.4g}"


def _calibration_table(result: Evaluation) -> Table:
    return ("probability up to", "rows", "mean", "right"), [
        (f"{b.upper:.3f}", f"{b.rows:,}", f"{b.confidence:.3f}", f"{b.accuracy:.3f}")
        for b in result.bins
    ]
