"""Learning on the rows of a task: what stands between a program that trains and a client that retrieves and submits.

Tensors of a model become blocks of a task, the ids of a batch become rows, and an update becomes what one submission
carries. NumPy is all that it needs; `fsl_async.learning.pytorch` is for PyTorch.
"""

from fsl_async.learning.sparsification import clipped
from fsl_async.learning.feedback import Compressed, ErrorFeedback
from fsl_async.learning.parts import MegaElements, Table
from fsl_async.learning.rows import Picked, distinct_rows, frequent_rows
from fsl_async.learning.sparsification import top_rows, top_weights
from fsl_async.learning.state_mapping import StateMapping
from fsl_async.learning.updates import Fit

__all__ = [
    "Compressed",
    "ErrorFeedback",
    "Fit",
    "MegaElements",
    "Picked",
    "StateMapping",
    "Table",
    "clipped",
    "distinct_rows",
    "frequent_rows",
    "top_rows",
    "top_weights",
]
