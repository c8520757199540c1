"""``python -m benchmarks decode [--full]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import decode


def main() -> None:
    """Run a benchmark and write its table beside what it prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=["decode"])
    parser.add_argument("--full", action="store_true", help="all sizes, sites and answers")
    parser.add_argument("--csv", type=Path, help="where to write the table (default: nowhere)")
    parser.add_argument("--run", type=Path, help="a run folder of `labelmapping demo` to decode")
    arguments = parser.parse_args()
    decode.run(full=arguments.full, csv_path=arguments.csv, demo_run=arguments.run)


if __name__ == "__main__":
    main()
