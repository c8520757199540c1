"""Speed beside peers, in the same run: ``python -m benchmarks NAME``."""
