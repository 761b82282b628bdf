"""The lane without a compiler: the innermost passes on NumPy and OpenSSL's AES. `compiled` has the same names.

All trees go down a level together, and a level's AES is one call of OpenSSL: an element costs memory and AES,
while arrays of a few blocks cost microseconds. Where kernels branch or index by no secret, nothing here does either:
bits choose through masks, and NumPy's loops run over shapes. This is also the text that says most plainly what a kernel
computes.
"""

from fsl_async.kernels.plain.aes import encrypt_row as encrypt_row, hash_row as hash_row
from fsl_async.kernels.plain.bounds import (
    add_projections as add_projections,
    add_wide_projections as add_wide_projections,
    sums_of_products as sums_of_products,
)
from fsl_async.kernels.plain.evaluation import (
    add as add,
    add_cached as add_cached,
    add_places as add_places,
    add_verified as add_verified,
    leaves_of as leaves_of,
    select as select,
    select_slots as select_slots,
)
from fsl_async.kernels.plain.generation import grow_pairs as grow_pairs, hint_planes as hint_planes
from fsl_async.kernels.plain.noise import sample_all as sample_all
from fsl_async.kernels.plain.rows import (
    add_wide as add_wide,
    add_words as add_words,
    forward as forward,
    inverse as inverse,
    place_all as place_all,
    select_places as select_places,
)
from fsl_async.kernels.plain.tags import answer_queries as answer_queries, sum_products as sum_products
from fsl_async.kernels.plain.products import multiplier_of as multiplier_of
