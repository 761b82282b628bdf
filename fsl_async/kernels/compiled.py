"""The compiled lane: the innermost passes as kernels. `plain` has the same names.

A kernel is compiled when it is first called, and kept on disk.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy

if TYPE_CHECKING:
    from fsl_async.kernels.bounds.combination_kernels import sums_of_products as sums_of_products
    from fsl_async.kernels.bounds.projection_kernels import (
        add_projections as add_projections,
        add_wide_projections as add_wide_projections,
    )
    from fsl_async.kernels.gaussian_kernels import sample_all as sample_all
    from fsl_async.kernels.multiplying import multiplier_of as multiplier_of, sum_products as sum_products
    from fsl_async.kernels.rows.cuckoo_kernels import place_all as place_all
    from fsl_async.kernels.rows.permutation_kernels import forward as forward, inverse as inverse
    from fsl_async.kernels.rows.segment_kernels import (
        add_wide as add_wide,
        add_words as add_words,
        select_places as select_places,
    )
    from fsl_async.kernels.trees.answering_kernels import answer_queries as answer_queries
    from fsl_async.kernels.trees.evaluation_kernels import (
        add as add,
        add_cached as add_cached,
        add_verified as add_verified,
        leaves_of as leaves_of,
        select as select,
        select_slots as select_slots,
    )
    from fsl_async.kernels.trees.generation_kernels import grow_pairs as grow_pairs, hint_planes as hint_planes
    from fsl_async.kernels.trees.passes import encrypt_row as encrypt_row, hash_row as hash_row
    from fsl_async.kernels.trees.union_kernels import add_places as add_places
else:
    __all__, __getattr__, __dir__ = lazy(__name__, __file__)
