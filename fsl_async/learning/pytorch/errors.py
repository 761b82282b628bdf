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
    """An optimizer is of other rows than a table holds: made before `hold`, or with moments of an earlier round.

    Make an optimizer for every round, once its rows are loaded:

        submodel.load(wanted, retrieved)
        optimizer = torch.optim.Adam(model.parameters())
    """
