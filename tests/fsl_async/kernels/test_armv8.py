"""The code for Armv8: compiled on any machine, and run where an emulator is installed (`pip install unicorn`)."""

import struct

import numpy as np
import pytest
from llvmlite import binding, ir

from fsl_async.kernels.simd import emit, emit_carryless
from fsl_async.kernels.simd.carryless import Pmull
from fsl_async.kernels.simd.isa import ISAS, Isa, schedule
from tests.support import reference, reference_tagging

TRIPLE = "aarch64-unknown-linux-gnu"
KEY = bytes(range(16))
ARMV8 = next(isa for isa in ISAS if isa.name == "armv8")


def module(isa: Isa) -> str:
    """A module whose one function hashes a vector of blocks in place: hash(round keys, blocks)."""
    result = ir.Module()
    result.triple = TRIPLE
    vector = ir.VectorType(emit.I64, 2 * isa.lanes)
    kind = ir.FunctionType(ir.VoidType(), [emit.I64.as_pointer(), vector.as_pointer()])
    function = ir.Function(result, kind, "hash")
    builder = ir.IRBuilder(function.append_basic_block())
    image = emit.orthomorphism(builder, builder.load(function.args[1], align=8))
    builder.store(builder.xor(emit.encrypt(builder, isa, function.args[0], image), image), function.args[1], align=8)
    builder.ret_void()
    return str(result)


def products_module(words: int) -> str:
    """A module whose one function multiplies a vector of words with a key: products(key, words, results)."""
    result = ir.Module()
    result.triple = TRIPLE
    pointer = emit.I64.as_pointer()
    function = ir.Function(result, ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer]), "products")
    builder = ir.IRBuilder(function.append_basic_block())
    key, source, target = function.args
    kind = ir.VectorType(emit.I64, words)
    vector = builder.load(builder.bitcast(source, kind.as_pointer()), align=8)
    keys = emit_carryless.prepare(builder, Pmull, builder.load(key), words)
    evens, odds = emit_carryless.products(builder, Pmull, vector, keys)
    for place, product in enumerate([*evens, *odds]):
        address = builder.gep(target, [emit.I64(2 * place)])
        builder.store(product, builder.bitcast(address, product.type.as_pointer()), align=8)
    builder.ret_void()
    return str(result)


def halves_module() -> str:
    """A module whose one function puts the product of its words in the place of each of two blocks: halves(blocks)."""
    result = ir.Module()
    result.triple = TRIPLE
    vector = ir.VectorType(emit.I64, 4)
    function = ir.Function(result, ir.FunctionType(ir.VoidType(), [vector.as_pointer()]), "halves")
    builder = ir.IRBuilder(function.append_basic_block())
    blocks = builder.load(function.args[0], align=8)
    builder.store(emit_carryless.products_of_halves(builder, Pmull, blocks), function.args[0], align=8)
    builder.ret_void()
    return str(result)


@pytest.fixture
def machine() -> binding.TargetMachine:
    try:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        target = binding.Target.from_triple(TRIPLE)
    except RuntimeError as absent:
        pytest.skip(f"this build of LLVM cannot compile for Armv8: {absent}")
    return target.create_target_machine(features="+aes,+neon", opt=2, codemodel="large")


def test_assembly_has_the_instructions(machine: binding.TargetMachine) -> None:
    assembly = machine.emit_assembly(binding.parse_assembly(module(ARMV8)))
    assert assembly.count("aese\t") == 10 * ARMV8.lanes
    assert assembly.count("aesmc\t") == 9 * ARMV8.lanes


def test_assembly_has_the_multiplications(machine: binding.TargetMachine) -> None:
    assembly = machine.emit_assembly(binding.parse_assembly(products_module(8)))
    assert assembly.count("pmull") == 8


def test_emulated(machine: binding.TargetMachine) -> None:
    blocks = np.random.default_rng(5).integers(0, 2**64, (ARMV8.lanes, 2), dtype=np.uint64)
    code = machine.emit_object(binding.parse_assembly(module(ARMV8)))
    (hashed,) = emulated(code, [schedule(ARMV8, KEY).schedule, blocks])[1:]
    expected = [reference.hash_block(KEY, block) for block in reference.to_ints(blocks)]
    assert reference.to_ints(hashed.reshape(-1, 2)) == expected


@pytest.mark.parametrize("words", [1, 8])
def test_emulated_multiplications(machine: binding.TargetMachine, words: int) -> None:
    rng = np.random.default_rng(6)
    key, factors = (rng.integers(0, 2**64, count, dtype=np.uint64) for count in (1, words))
    code = machine.emit_object(binding.parse_assembly(products_module(words)))
    results = emulated(code, [key, factors, np.zeros(2 * words, dtype=np.uint64)])[2]
    made = [reference_tagging.multiply(int(key[0]), int(factor)) for factor in factors]
    assert reference.to_ints(results.reshape(-1, 2)) == made[::2] + made[1::2]


def test_emulated_products_of_halves(machine: binding.TargetMachine) -> None:
    blocks = np.random.default_rng(7).integers(0, 2**64, (2, 2), dtype=np.uint64)
    (made,) = emulated(machine.emit_object(binding.parse_assembly(halves_module())), [blocks])
    expected = [reference_tagging.multiply(int(low), int(high)) for low, high in blocks]
    assert reference.to_ints(made.reshape(-1, 2)) == expected


def emulated(image: bytes, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Call an object file's one function with the addresses of arrays; the arrays as it leaves them."""
    unicorn = pytest.importorskip("unicorn", reason="no emulator for Armv8: unicorn is not installed")
    sections = sections_of(image)
    assert ".rela.text" not in sections  # there is no linker here
    code, data, stack, end = 0x10000, 0x20000, 0x50000, 0x1FFF0
    arm64 = unicorn.arm64_const
    emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    emulator.ctl_set_cpu_model(arm64.UC_CPU_ARM64_MAX)
    emulator.mem_map(code, 0x50000)
    emulator.mem_write(code, sections[".text"])
    addresses = [data + 0x4000 * place for place in range(len(arrays))]
    for address, array in zip(addresses, arrays, strict=True):
        emulator.mem_write(address, array.tobytes())
    registers = {f"X{place}": address for place, address in enumerate(addresses)}
    registers |= {"SP": stack, "X30": end, "CPACR_EL1": 3 << 20}
    for name, value in registers.items():
        emulator.reg_write(getattr(arm64, f"UC_ARM64_REG_{name}"), value)
    emulator.emu_start(code, end)
    return [
        np.frombuffer(emulator.mem_read(address, array.nbytes), dtype=np.uint64)
        for address, array in zip(addresses, arrays, strict=True)
    ]


def sections_of(image: bytes) -> dict[str, bytes]:
    """The sections of a 64-bit little-endian ELF object by name; empty ones are left out."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + size * i) for i in range(count)]
    name_table = headers[names][4]
    result = {}
    for name, _, _, _, offset, length in headers:
        start = name_table + name
        text = image[start : image.index(b"\0", start)].decode()
        if length:
            result[text] = image[offset : offset + length]
    return result
