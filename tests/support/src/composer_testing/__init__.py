"""Helpers that the tests of several packages share.

Only what two test folders need lives here; it is installed by `make install-dev` and never shipped.
"""

from composer_testing.distributions import write_distribution
from composer_testing.process import run_python

__all__ = ["run_python", "write_distribution"]
