"""The explorer: accuracy against time and money over many runs.

The place is reserved so that the name has one owner; the explorer comes with a later release.
"""
