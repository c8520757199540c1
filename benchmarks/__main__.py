"""``python -m benchmarks NAME``: each compares with peers in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:  # noqa: PLR0915 - one statement an option
    """Run a benchmark and write its table beside what it prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    names = parser.add_subparsers(dest="name", required=True)
    decode = names.add_parser("decode", help="exact top-k beside a scan, a gather, a dense product")
    decode.add_argument("--full", action="store_true", help="all sizes, sites and answers")
    decode.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    decode.add_argument("--run", type=Path, help="a run folder of `labelmapping demo` to decode")
    assignment = names.add_parser("assignment", help="which classes share a symbol: CJK characters")
    assignment.add_argument("--class-set", default="uro", help="default %(default)s")
    assignment.add_argument("--steps", type=int, default=6000, help="default %(default)s")
    assignment.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    assignment.add_argument("--rows", nargs="+", help="names of codes (default: all)")
    assignment.add_argument("--run-dir", type=Path, help="default runs/assignment-CLASS_SET-STEPS")
    linear = names.add_parser("linear", help="linear learners on synthetic classes")
    linear.add_argument("--classes", type=int, nargs="+", default=[2000, 10_000])
    linear.add_argument("--sites", type=int, nargs="+", default=[4, 8, 12])
    linear.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    linear.add_argument(
        "--rival",
        nargs="+",
        default=[],
        metavar="NAME=PYTHON",
        help="omikuji, napkinxc or pecos, with an interpreter that has it (benchmarks/rivals)",
    )
    linear.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    items = names.add_parser("items", help="which items share a symbol: next-item logs")
    items.add_argument("--data-set", default="Beauty", help="a known log, or a file of one's own")
    items.add_argument("--data-dir", type=Path, help="default: LABELMAPPING_DATA")
    items.add_argument("--epochs", type=int, default=6, help="default %(default)s")
    items.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    items.add_argument("--rows", nargs="+", help="names of codes (default: all)")
    items.add_argument("--run-dir", type=Path, help="default runs/items-DATA_SET-EPOCHS")
    omniglot = names.add_parser("omniglot", help="codes with few drawings a class: Omniglot")
    omniglot.add_argument("--steps", type=int, default=2000, help="default %(default)s")
    omniglot.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    omniglot.add_argument("--rows", nargs="+", help="names of codes (default: all)")
    omniglot.add_argument("--data-dir", type=Path, help="default: LABELMAPPING_DATA")
    omniglot.add_argument("--run-dir", type=Path, help="default runs/omniglot-STEPS")
    scale = names.add_parser("scale", help="fitting learnt codes: seconds and memory by N")
    scale.add_argument("--classes", type=int, nargs="+", default=[20_000, 100_000])
    scale.add_argument("--width", type=int, default=64, help="default %(default)s")
    scale.add_argument("--sites", type=int, default=4, help="default %(default)s")
    scale.add_argument("--alphabet-size", type=int, help="default: what `fit` takes")
    scale.add_argument("--data", choices=("random", "clusters"), default="random")
    scale.add_argument("--seed", type=int, default=0, help="default %(default)s")
    scale.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    head = names.add_parser("head", help="a training step of output layers, by N")
    head.add_argument("--classes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7, 10**8])
    head.add_argument("--hidden", type=int, nargs="+", default=[0, 1024], help="default 0 1024")
    head.add_argument("--device", choices=("cpu", "cuda"), help="default: all that are there")
    head.add_argument("--memory", type=float, default=10.0, help="GiB a row may need (default 10)")
    head.add_argument("--rows", nargs="+", help="names of rows (default: all)")
    head.add_argument(
        "--loss-rounds", type=int, default=60, help="of the loss alone, a sixth of them to warm up"
    )
    head.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    estimator = names.add_parser("estimator", help="the scikit-learn estimator beside its peers")
    estimator.add_argument(
        "--data",
        nargs="+",
        default=["omniglot", "beauty", "2,000", "10,000"],
        help="default %(default)s; 100,000 and 1,000,000 take long",
    )
    estimator.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    estimator.add_argument("--rows", nargs="+", help="names of rows (default: all)")
    estimator.add_argument(
        "--rival",
        nargs="+",
        default=[],
        metavar="NAME=PYTHON",
        help="omikuji or napkinxc, with an interpreter that has it (benchmarks/rivals)",
    )
    estimator.add_argument(
        "--limit", type=int, default=600, help="CPU seconds a row may take (default %(default)s)"
    )
    estimator.add_argument("--data-dir", type=Path, help="default: LABELMAPPING_DATA")
    estimator.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    erasures = names.add_parser("erasures", help="what lost learners cost: CJK characters")
    erasures.add_argument("--class-set", default="gb2312-1", help="default %(default)s")
    erasures.add_argument("--steps", type=int, default=2000, help="default %(default)s")
    erasures.add_argument("--seed", type=int, default=0, help="default %(default)s")
    erasures.add_argument("--rows", nargs="+", help="names of codes (default: all)")
    erasures.add_argument("--run-dir", type=Path, help="default runs/erasures-CLASS_SET-STEPS")
    prior = names.add_parser("word-prior", help="Republic's perplexity, with words' frequencies")
    prior.add_argument("--run-dir", type=Path, default=Path("runs/republic-paper"))
    prior.add_argument("--data-dir", type=Path, help="default: LABELMAPPING_DATA")
    prior.add_argument("--epoch", type=int, default=4, help="default %(default)s")
    prior.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    arguments = parser.parse_args()
    # Each imports what it alone needs.
    if arguments.name == "decode":
        from . import decode as benchmark

        benchmark.run(full=arguments.full, csv_path=arguments.csv, demo_run=arguments.run)
    elif arguments.name == "items":
        from . import items as sequences

        sequences.run(
            data_set=arguments.data_set,
            epochs=arguments.epochs,
            seeds=arguments.seeds,
            rows=arguments.rows,
            folder=arguments.run_dir,
            data_dir=arguments.data_dir,
        )
    elif arguments.name == "omniglot":
        from . import omniglot as drawings

        drawings.run(
            steps=arguments.steps,
            seeds=arguments.seeds,
            rows=arguments.rows,
            folder=arguments.run_dir,
            data_dir=arguments.data_dir,
        )
    elif arguments.name == "head":
        from . import head as heads

        heads.run(
            sizes=arguments.classes,
            hidden=arguments.hidden,
            memory_gib=arguments.memory,
            only=arguments.device,
            rows=arguments.rows,
            csv_path=arguments.csv,
            loss_rounds=arguments.loss_rounds,
        )
    elif arguments.name == "estimator":
        from . import estimator as classifiers

        classifiers.run(
            sets=arguments.data,
            seeds=arguments.seeds,
            rows=arguments.rows,
            rivals=dict(rival.partition("=")[::2] for rival in arguments.rival),
            limit=arguments.limit,
            data_dir=arguments.data_dir,
            csv_path=arguments.csv,
        )
    elif arguments.name == "erasures":
        from . import erasures as lost

        lost.run(
            class_set=arguments.class_set,
            steps=arguments.steps,
            seed=arguments.seed,
            rows=arguments.rows,
            folder=arguments.run_dir,
        )
    elif arguments.name == "word-prior":
        from . import word_prior

        word_prior.run(
            run_dir=arguments.run_dir,
            data_dir=arguments.data_dir,
            epoch=arguments.epoch,
            csv_path=arguments.csv,
        )
    elif arguments.name == "scale":
        from . import scale as fits

        fits.run(
            sizes=arguments.classes,
            width=arguments.width,
            n_sites=arguments.sites,
            alphabet_size=arguments.alphabet_size,
            data=arguments.data,
            seed=arguments.seed,
            csv_path=arguments.csv,
        )
    elif arguments.name == "assignment":
        from . import assignment as codes

        codes.run(
            class_set=arguments.class_set,
            steps=arguments.steps,
            seeds=arguments.seeds,
            rows=arguments.rows,
            folder=arguments.run_dir,
        )
    else:
        from . import linear as learners

        learners.run(
            sizes=arguments.classes,
            sites=arguments.sites,
            seeds=arguments.seeds,
            rivals=dict(rival.partition("=")[::2] for rival in arguments.rival),
            csv_path=arguments.csv,
        )


if __name__ == "__main__":
    main()
