"""The code for Armv8: compiled on any machine, and run where an emulator is installed (`pip install unicorn`)."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from llvmlite import binding, ir

from fsl_async.kernels.simd import emit
from fsl_async.kernels.simd.isa import ISAS, Isa, schedule
from tests.support import reference

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


def test_emulated(machine: binding.TargetMachine) -> None:
    unicorn = pytest.importorskip("unicorn", reason="no emulator for Armv8: unicorn is not installed")
    sections = sections_of(machine.emit_object(binding.parse_assembly(module(ARMV8))))
    assert ".rela.text" not in sections  # there is no linker here
    blocks = np.random.default_rng(5).integers(0, 2**64, (ARMV8.lanes, 2), dtype=np.uint64)
    code, keys, data, stack, end = 0x10000, 0x20000, 0x30000, 0x50000, 0x1FFF0
    arm64 = unicorn.arm64_const
    emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    emulator.ctl_set_cpu_model(arm64.UC_CPU_ARM64_MAX)
    emulator.mem_map(code, 0x50000)
    emulator.mem_write(code, sections[".text"])
    emulator.mem_write(keys, schedule(ARMV8, KEY).schedule.tobytes())
    emulator.mem_write(data, blocks.tobytes())
    registers = {"X0": keys, "X1": data, "SP": stack, "X30": end, "CPACR_EL1": 3 << 20}
    for name, value in registers.items():
        emulator.reg_write(getattr(arm64, f"UC_ARM64_REG_{name}"), value)
    emulator.emu_start(code, end)
    hashed = np.frombuffer(emulator.mem_read(data, blocks.nbytes), dtype=np.uint64).reshape(-1, 2)
    expected = [reference.hash_block(KEY, block) for block in reference.to_ints(blocks)]
    assert reference.to_ints(hashed) == expected


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
