"""Every name that the rest of the library uses of the compiled kernels; loading this module loads the compiler."""

from fsl_async.kernels.aes import active_isa, encrypt_blocks, hash_blocks, key_schedule, keystream, select_isa
from fsl_async.kernels.rows.cuckoo import Placement, place
from fsl_async.kernels.rows.permutation import Permutation
from fsl_async.kernels.rows.segments import fold, payload_of_planes, payload_planes, permuted_model, select_rows
from fsl_async.kernels.selftest import KernelFaultError
from fsl_async.kernels.simd.isa import Keys, isa_names
from fsl_async.kernels.trees.evaluation import (
    Evaluation,
    Selection,
    Verification,
    add_leaves,
    evaluate_add,
    evaluate_leaves,
    evaluate_select,
    evaluate_verified,
)
from fsl_async.kernels.trees.generation import (
    Tree,
    TreeKeys,
    generate,
    make_hints,
    make_select_hints,
    tag_corrections,
)
from fsl_async.kernels.trees.union_evaluation import GROUP, Places, choose_places, evaluate_places

__all__ = [
    "GROUP",
    "Evaluation",
    "KernelFaultError",
    "Keys",
    "Permutation",
    "Placement",
    "Places",
    "Selection",
    "Tree",
    "TreeKeys",
    "Verification",
    "active_isa",
    "add_leaves",
    "choose_places",
    "encrypt_blocks",
    "evaluate_add",
    "evaluate_leaves",
    "evaluate_places",
    "evaluate_select",
    "evaluate_verified",
    "fold",
    "generate",
    "hash_blocks",
    "isa_names",
    "key_schedule",
    "keystream",
    "make_hints",
    "make_select_hints",
    "payload_of_planes",
    "payload_planes",
    "permuted_model",
    "place",
    "select_isa",
    "select_rows",
    "tag_corrections",
]
