"""The paper's experiments, and the demo, on the learners of this package."""
