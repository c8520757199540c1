"""CJK characters: the paper's tables 1 to 3, and rows of our own."""
