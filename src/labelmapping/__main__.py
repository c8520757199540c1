"""``python -m labelmapping`` is the ``labelmapping`` command."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
