"""Streaming data sets: sharded data read while training, from a position that can be saved.

The place is reserved so that the name has one owner; readers and writers come with a later release.
"""
