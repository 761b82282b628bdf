"""What a held table raises."""

from __future__ import annotations

from fsl_async.errors import MisuseError


class RowNotRetrievedError(MisuseError):
    """A batch has ids of rows that the table does not hold, because they were not retrieved.

        try:
            loss = model(batch)
        except RowNotRetrievedError as error:
            print(error.table, error.rows)

    Attributes:
        table: the table's name.
        rows: the rows that are missing, ascending.
    """

    def __init__(self, message: str, table: str = "", rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.table = table
        self.rows = rows


class StaleOptimizerError(MisuseError):
    """An optimizer has moments of the rows that a table held before, and would apply them to other rows.

    Make an optimizer for every round, once its rows are loaded:

        submodel.load(retrieved)
        optimizer = torch.optim.Adam(model.parameters())
    """
