"""Learning with PyTorch: tables that hold the retrieved rows alone, under the user's own model and loop.

It needs the extra `torch`; nothing else in this distribution imports it.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'fsl_async.learning.pytorch needs PyTorch, which is not installed: pip install "fsl-async[torch]"', name="torch"
    ) from error

from fsl_async.learning.pytorch.held import HeldEmbedding, HeldEmbeddingBag, RowNotRetrievedError
from fsl_async.learning.pytorch.models import load_blocks, map_model, model_blocks
from fsl_async.learning.pytorch.optimizers import StaleOptimizerError
from fsl_async.learning.pytorch.submodel import Submodel, hold

__all__ = [
    "HeldEmbedding",
    "HeldEmbeddingBag",
    "RowNotRetrievedError",
    "StaleOptimizerError",
    "Submodel",
    "hold",
    "load_blocks",
    "map_model",
    "model_blocks",
]
