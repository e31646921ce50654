"""The two-method contract by which every long-lived part saves itself.

The owner of a value writes and reads it; containers (``State``, the checkpoint) only walk over the
parts and never look inside.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Serializable"]


class Serializable:
    """Something with a state that a checkpoint keeps.

    Both methods do nothing by default, so a part without state need not mention them. What
    ``state_dict`` returns must consist of plain types (numbers, strings, ``None``, lists, tuples,
    dictionaries and tensors): checkpoints hold no code.

    Example:
        >>> class Counter(Serializable):
        ...     def __init__(self):
        ...         self.n = 0
        ...     def state_dict(self):
        ...         return {"n": self.n}
        ...     def load_state_dict(self, state):
        ...         self.n = state["n"]
        >>> a, b = Counter(), Counter()
        >>> a.n = 3
        >>> b.load_state_dict(a.state_dict())
        >>> b.n
        3
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain types.

        Returns:
            The state; empty when there is none.

        Example:
            >>> Serializable().state_dict()
            {}
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Args:
            state: The saved state.

        Example:
            >>> Serializable().load_state_dict({})
        """
        del state
