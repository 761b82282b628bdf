"""Modules in the place of `nn.Embedding` and `nn.EmbeddingBag` that hold only the rows that were retrieved.

Rules: a module takes the same global ids as the one it replaces, and computes the same numbers from the same rows, bit
for bit; it never makes up a row: an id that is not held is an error, and not a zero. The one exception is the row of
`padding_idx`, which no gradient reaches: where it was not retrieved it is zero, as PyTorch makes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from fsl_async.errors import MisuseError
from fsl_async.learning.pytorch.optimizers import note_load
from fsl_async.learning.pytorch.tensors import check_device, check_dtype, rounding_error, to_tensor

_NAMED = 5  # how many ids an error's message lists
_ROWS = "rows"  # in the metadata of a state_dict


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


class HeldTable(nn.Module):
    """What both modules share: the rows that are held, and where a global id stands among them.

    Attributes:
        weight: the held rows, a parameter (rows held, embedding_dim), ascending by their ids.
        table: the name by which errors call it.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        *,
        table: str,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
    ) -> None:
        super().__init__()
        dtype = dtype or torch.get_default_dtype()
        check_dtype(table, dtype)
        weight = torch.empty((0, embedding_dim), dtype=dtype, device=device)
        check_device(table, weight)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _padding(padding_idx, num_embeddings, table)
        self.table = table
        self.weight = nn.Parameter(weight)
        self.register_buffer("_held", torch.empty(0, dtype=torch.int64, device=device), persistent=False)
        self._loads = 0
        self.load([], np.empty((0, embedding_dim)))

    def load(self, rows: npt.ArrayLike, values: npt.ArrayLike | torch.Tensor) -> float:
        """Hold these rows, and no others.

        The parameter `weight` stays the same object, and its gradient is dropped.

        Args:
            rows: distinct ids (k,), in any order.
            values: their weights (k, embedding_dim), floats; an array or a tensor.

        Returns:
            The largest error of rounding the values to the dtype of `weight`; 0.0 where it holds all of them exactly.

        Raises:
            MisuseError: an id is outside the table or comes twice, a shape is wrong, or a value is not finite.
        """
        ids = self._distinct(rows)
        given = values.detach() if isinstance(values, torch.Tensor) else to_tensor(self.table, values)
        check_dtype(self.table, given.dtype)
        check_device(self.table, given)
        if tuple(given.shape) != (len(ids), self.embedding_dim):
            raise MisuseError(
                f"table {self.table!r}: values of shape {(len(ids), self.embedding_dim)} expected for {len(ids)} rows, "
                f"got {tuple(given.shape)}"
            )
        order = np.argsort(ids, kind="stable")
        ids, given = ids[order], given[torch.from_numpy(order).to(given.device)]
        converted = given.to(dtype=self.weight.dtype, device=self.weight.device)
        error = rounding_error(given, converted, lambda place: f"table {self.table!r}, row {ids[place[0]]}")
        self._hold(*self._with_padding(ids, converted))
        return error

    def _distinct(self, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        ids = np.asarray(rows)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise MisuseError(
                f"table {self.table!r}: row ids in one dimension expected, got {ids.dtype} of shape {ids.shape}"
            )
        outside = (ids < 0) | (ids >= self.num_embeddings)
        if outside.any():
            raise self._outside(ids[outside].tolist())
        distinct, counts = np.unique(ids, return_counts=True)
        if len(distinct) != len(ids):
            raise MisuseError(f"table {self.table!r}: row {distinct[counts > 1][0]} comes twice")
        return ids.astype(np.int64)

    def _with_padding(
        self, ids: npt.NDArray[np.int64], values: torch.Tensor
    ) -> tuple[npt.NDArray[np.int64], torch.Tensor]:
        """With a row of zeros for the padding, if there is one and it was not retrieved."""
        self._retrieved = ids
        if self.padding_idx is None or self.padding_idx in ids:
            return ids, values.clone()
        place = int(np.searchsorted(ids, self.padding_idx))
        zeros = values.new_zeros((1, self.embedding_dim))
        return np.insert(ids, place, self.padding_idx), torch.cat((values[:place], zeros, values[place:]))

    def _hold(self, ids: npt.NDArray[np.int64], values: torch.Tensor) -> None:
        self._held = torch.from_numpy(ids.copy()).to(self.weight.device)
        self.weight.grad = None
        # A parameter's place in the graph remembers its shape for as long as somebody keeps a loss of an earlier round.
        # It is made anew where the dtype changes, so it changes twice.
        other = torch.float32 if values.dtype == torch.float64 else torch.float64
        self.weight.data = torch.empty(0, dtype=other, device=values.device)
        self.weight.data = values.contiguous()
        self._loads += 1
        note_load(self.weight, self.table, self._loads)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The ids of the rows that were loaded, ascending."""
        return self._retrieved.copy()

    def values(self) -> torch.Tensor:
        """The weights of `rows`, detached, (k, embedding_dim); they share memory with `weight` where they can."""
        held = self.weight.detach()
        if len(held) == len(self._retrieved):
            return held
        return held[self._held != self.padding_idx]

    def holds(self, ids: torch.Tensor) -> torch.Tensor:
        """Which ids can be looked up; those outside the table cannot.

            ids[~model.words.holds(ids)] = UNKNOWN      # where the task has room for the most frequent words only

        Args:
            ids: integers of any shape.

        Returns:
            Booleans of the same shape.
        """
        self._check_ids(ids)
        return torch.isin(ids.to(torch.int64), self._held)

    def _positions(self, ids: torch.Tensor) -> torch.Tensor:
        """Where each id stands in `weight`, in the same shape and dtype.

        Raises:
            RowNotRetrievedError: a row is not held.
            MisuseError: an id is outside the table, or ids are no integers.
        """
        self._check_ids(ids)
        note_load(self.weight, self.table, self._loads)
        flat = ids.reshape(-1).to(torch.int64).contiguous()
        if not len(flat):
            return ids
        if not len(self._held):
            raise self._missing(flat)
        places = torch.searchsorted(self._held, flat).clamp_(max=len(self._held) - 1)
        missing = self._held[places] != flat
        if missing.any():
            raise self._missing(flat[missing])
        return places.to(ids.dtype).reshape(ids.shape)

    def _position_of_padding(self) -> int | None:
        if self.padding_idx is None:
            return None
        return int(torch.searchsorted(self._held, self.padding_idx))

    def _check_ids(self, ids: torch.Tensor) -> None:
        if ids.is_nested:
            raise MisuseError(f"table {self.table!r}: nested tensors are not supported; give ids and offsets")
        if ids.dtype not in (torch.int32, torch.int64):
            raise MisuseError(f"table {self.table!r}: ids of int32 or int64 expected, got {ids.dtype}")
        if ids.device != self._held.device:
            raise MisuseError(
                f"table {self.table!r} is on {self._held.device}, and the ids are on {ids.device}; move one of them"
            )

    def _missing(self, ids: torch.Tensor) -> MisuseError:
        distinct = torch.unique(ids).tolist()
        outside = [row for row in distinct if not 0 <= row < self.num_embeddings]
        if outside:
            return self._outside(outside)
        return RowNotRetrievedError(
            f"table {self.table!r}: {_listed(distinct)} not retrieved; it holds {len(self._retrieved):,} of "
            f"{self.num_embeddings:,} rows. Retrieve the rows of every batch of the round before training "
            "(`submodel.wanted`), or give such ids another meaning (`holds` says which there are)",
            self.table,
            tuple(distinct),
        )

    def _outside(self, ids: list[int]) -> MisuseError:
        return MisuseError(
            f"table {self.table!r}: id {ids[0]} is outside the table, whose ids are 0 to {self.num_embeddings - 1:,}"
            + (f"; so are {len(ids) - 1:,} others" if len(ids) > 1 else "")
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Note in the metadata which rows the weights are of."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata.setdefault(prefix[:-1], {})[_ROWS] = self._held.tolist()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        """Refuse the weights of other rows."""
        if _ROWS in local_metadata and local_metadata[_ROWS] != self._held.tolist():
            raise MisuseError(
                f"table {self.table!r}: this state_dict was saved when other rows were held; load those rows first "
                "(`load`), or keep a state_dict within its round"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        """What `print(model)` shows of it."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return (
            f"{self.num_embeddings}, {self.embedding_dim}{padding}, table={self.table!r}, held={len(self._retrieved)}"
        )


class HeldEmbedding(HeldTable):
    """In the place of `nn.Embedding`: the same ids, of which only the retrieved rows are held.

        words = HeldEmbedding(50_000, 64, padding_idx=0, table="words")
        words.load([3, 17], [[0.5] * 64, [0.25] * 64])
        words(torch.tensor([[3, 17], [17, 0]]))          # (2, 2, 64)

    Args:
        num_embeddings: the rows of the whole table.
        embedding_dim: the weights of a row.
        padding_idx: the id whose row no gradient reaches; where it is not loaded, its row is zero.
        max_norm: as of `nn.Embedding`: rows that are looked up are scaled down to this norm, in place.
        norm_type: which norm that is.
        scale_grad_by_freq: as of `nn.Embedding`.
        sparse: whether gradients are sparse tensors.
        table: the name by which errors call it.
        dtype: of the weights; PyTorch's default dtype if it is not given.
        device: of the weights.

    Raises:
        MisuseError: the padding is outside the table, the dtype is no float of at most 64 bits, or the device has no
            memory ("meta").
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        table: str = "embedding",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, table=table, dtype=dtype, device=device)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Look rows up.

        Args:
            input: global ids of any shape, int32 or int64.

        Returns:
            Their rows, of the same shape with a last axis of `embedding_dim`.

        Raises:
            RowNotRetrievedError: a row is not held.
            MisuseError: an id is outside the table.
        """
        return functional.embedding(
            self._positions(input),
            self.weight,
            self._position_of_padding(),
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class HeldEmbeddingBag(HeldTable):
    """In the place of `nn.EmbeddingBag`: the same ids, offsets and weights, of which only retrieved rows are held.

        bags = HeldEmbeddingBag(50_000, 64, mode="sum", table="words")
        bags.load([3, 17], [[0.5] * 64, [0.25] * 64])
        bags(torch.tensor([3, 17, 17]), torch.tensor([0, 2]))      # (2, 64)

    Args:
        num_embeddings: the rows of the whole table.
        embedding_dim: the weights of a row.
        max_norm: as of `nn.EmbeddingBag`: rows that are looked up are scaled down to this norm, in place.
        norm_type: which norm that is.
        scale_grad_by_freq: as of `nn.EmbeddingBag`.
        mode: "sum", "mean" or "max".
        sparse: whether gradients are sparse tensors.
        include_last_offset: as of `nn.EmbeddingBag`.
        padding_idx: the id that is left out of every bag; its row need not be loaded.
        table: the name by which errors call it.
        dtype: of the weights; PyTorch's default dtype if it is not given.
        device: of the weights.

    Raises:
        MisuseError: the padding is outside the table, the dtype is no float of at most 64 bits, or the device has no
            memory ("meta").
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        table: str = "embedding",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, table=table, dtype=dtype, device=device)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Reduce the rows of every bag to one.

        Args:
            input: global ids, int32 or int64: (bags, ids of each), or in one dimension with `offsets`.
            offsets: where each bag begins.
            per_sample_weights: as of `nn.EmbeddingBag`, with mode "sum".

        Returns:
            (bags, embedding_dim).

        Raises:
            RowNotRetrievedError: a row is not held.
            MisuseError: an id is outside the table.
        """
        return functional.embedding_bag(
            self._positions(input),
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self._position_of_padding(),
        )


def _padding(index: int | None, rows: int, table: str) -> int | None:
    """A padding index counted from 0, as PyTorch takes them from the end too."""
    if index is None:
        return None
    if not -rows <= index < rows:
        raise MisuseError(f"table {table!r}: padding_idx {index} is outside the table of {rows:,} rows")
    return index % rows


def _listed(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]} was"
    shown = ", ".join(map(str, rows[:_NAMED]))
    return f"rows {shown}{', …' if len(rows) > _NAMED else ''} ({len(rows):,} of them) were"
