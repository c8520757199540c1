"""``python -m benchmarks NAME``: each compares with peers in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
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
    linear.add_argument("--sites", type=int, nargs="+", default=[4, 8])
    linear.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    linear.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    arguments = parser.parse_args()
    # Each imports what it alone needs.
    if arguments.name == "decode":
        from . import decode as benchmark

        benchmark.run(full=arguments.full, csv_path=arguments.csv, demo_run=arguments.run)
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
            csv_path=arguments.csv,
        )


if __name__ == "__main__":
    main()
