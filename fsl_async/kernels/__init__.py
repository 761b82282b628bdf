"""What a round computes with: AES, distributed point functions, and rows in and out of segments.

The compiler behind them takes half a second to import, which a command that computes nothing should not pay for: a
name's module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy

if TYPE_CHECKING:
    from fsl_async.kernels.aes import (
        active_isa as active_isa,
        encrypt_blocks as encrypt_blocks,
        hash_blocks as hash_blocks,
        key_schedule as key_schedule,
        keystream as keystream,
        plain_unless_chosen as plain_unless_chosen,
        select_isa as select_isa,
    )
    from fsl_async.kernels.arrays import Blocks as Blocks
    from fsl_async.kernels.gaussian import NOISE_CHUNK as NOISE_CHUNK, discrete_gaussian as discrete_gaussian
    from fsl_async.kernels.bounds.combination import combine as combine
    from fsl_async.kernels.bounds.projection import project as project
    from fsl_async.kernels.lane import compiles as compiles
    from fsl_async.kernels.rows.cuckoo import Placement as Placement, place as place
    from fsl_async.kernels.rows.permutation import Permutation as Permutation
    from fsl_async.kernels.rows.segments import (
        fold as fold,
        payload_of_planes as payload_of_planes,
        payload_planes as payload_planes,
        permuted_model as permuted_model,
        select_rows as select_rows,
    )
    from fsl_async.kernels.rows.tagging import tag_words as tag_words
    from fsl_async.kernels.rows.tagging import answers_match as answers_match, finish_tags as finish_tags
    from fsl_async.kernels.selftest import KernelFaultError as KernelFaultError
    from fsl_async.kernels.simd.isa import Keys as Keys, isa_names as isa_names
    from fsl_async.kernels.trees.answering import answer_tagged as answer_tagged
    from fsl_async.kernels.trees.arguments import (
        GROUP as GROUP,
        NO_TOTALS as NO_TOTALS,
        AskedTotals as AskedTotals,
        Totals as Totals,
    )
    from fsl_async.kernels.trees.evaluation import (
        Evaluation as Evaluation,
        OnRange as OnRange,
        Selection as Selection,
        Verification as Verification,
        add_leaves as add_leaves,
        adder as adder,
        evaluate_leaves as evaluate_leaves,
        evaluate_select as evaluate_select,
        verifying_adder as verifying_adder,
    )
    from fsl_async.kernels.trees.generation import (
        Tree as Tree,
        generate as generate,
        make_hints as make_hints,
        make_select_hints as make_select_hints,
        tag_corrections as tag_corrections,
    )
    from fsl_async.kernels.trees.union_evaluation import (
        Places as Places,
        choose_places as choose_places,
        places_adder as places_adder,
    )
else:
    __all__, __getattr__, __dir__ = lazy(__name__, __file__)
