"""CIFAR-100: the curves of the paper's figures 5 to 7."""
