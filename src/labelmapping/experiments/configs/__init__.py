"""One file a row of a table: what it is, how long it takes, and what the paper has for it.

Times are of one process on an otherwise idle machine, training and measuring.
"""
