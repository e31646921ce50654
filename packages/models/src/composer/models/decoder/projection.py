"""A linear layer without bias that knows its own first weights.

Knowing them, it can be set again after it was built without data (on the ``meta`` device).
"""

from __future__ import annotations

from torch import nn

__all__ = ["Projection", "TokenEmbedding"]


class Projection(nn.Linear):
    """A linear layer without bias, whose weights start normal.

    Args:
        in_features: Size of what goes in.
        out_features: Size of what comes out.
        std: Spread of the first weights.

    Example:
        >>> Projection(3, 2, std=0.0).weight.detach().tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, in_features: int, out_features: int, *, std: float) -> None:
        # Before the base class, which calls `reset_parameters`.
        self.std = std
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        """Draw the weights.

        Example:
            >>> layer = Projection(3, 2, std=0.0)
            >>> _ = layer.weight.data.fill_(1)
            >>> layer.reset_parameters()
            >>> bool(layer.weight.any())
            False
        """
        nn.init.normal_(self.weight, std=self.std)


class TokenEmbedding(nn.Embedding):
    """A vector per token, whose entries start normal.

    Args:
        num_embeddings: Number of tokens.
        embedding_dim: Size of the vectors.
        std: Spread of the first weights.

    Example:
        >>> TokenEmbedding(3, 2, std=0.0).weight.detach().tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, std: float) -> None:
        self.std = std
        super().__init__(num_embeddings, embedding_dim)

    def reset_parameters(self) -> None:
        """Draw the vectors.

        Example:
            >>> table = TokenEmbedding(3, 2, std=0.0)
            >>> table.reset_parameters()
            >>> table.weight.detach().abs().max()
            tensor(0.)
        """
        nn.init.normal_(self.weight, std=self.std)
