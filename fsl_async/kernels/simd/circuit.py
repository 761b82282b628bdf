"""The S-box of AES as a Boolean circuit, for key expansion, which must run without tables.

A table look-up leaks its index through the cache, so the S-box is computed: eight *planes*, plane i holding bit i of
every byte, go through the 115 gates of Boyar and Peralta. The function asks of a plane only `^`, `&` and `~`.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

ROUNDS = 10
LOWEST_BITS = 0x01010101


class Plane(Protocol):
    """One bit of every byte of a state."""

    def __xor__(self, other: Self, /) -> Self: ...
    def __and__(self, other: Self, /) -> Self: ...
    def __invert__(self) -> Self: ...


P = TypeVar("P", bound=Plane)


def substitute(planes: list[P]) -> list[P]:
    """SubBytes on eight planes, lowest bit first.

    Source: Boyar, Peralta, "A small depth-16 circuit for the AES S-box" (2012), the 115-gate variant; names as there.
    """
    u7, u6, u5, u4, u3, u2, u1, u0 = planes
    y14, y13, y9, y8, t0 = u3 ^ u5, u0 ^ u6, u0 ^ u3, u0 ^ u5, u1 ^ u2
    y1 = t0 ^ u7
    y4, y12, y2, y5 = y1 ^ u3, y13 ^ y14, y1 ^ u0, y1 ^ u6
    y3, t1 = y5 ^ y8, u4 ^ y12
    y15, y20 = t1 ^ u5, t1 ^ u1
    y6, y10, y11 = y15 ^ u7, y15 ^ t0, y20 ^ y9
    y7, y17, y19, y16 = u7 ^ y11, y10 ^ y11, y10 ^ y8, t0 ^ y11
    y21, y18 = y13 ^ y16, u0 ^ y16

    t2, t7, t12 = y12 & y15, y13 & y16, y9 & y11
    t4, t6 = (y3 & y6) ^ t2, (y4 & u7) ^ t2
    t9, t11 = (y5 & y1) ^ t7, (y2 & y7) ^ t7
    t14, t16 = (y14 & y17) ^ t12, (y8 & y10) ^ t12
    t21, t22 = t4 ^ t14 ^ y20, t6 ^ t16 ^ y19
    t23, t24 = t9 ^ t14 ^ y21, t11 ^ t16 ^ y18
    t25, t26, t30 = t21 ^ t22, t21 & t23, t23 ^ t24
    t27, t31 = t24 ^ t26, t22 ^ t26
    t29, t33 = (t25 & t27) ^ t22, (t31 & t30) ^ t24
    t36 = t24 & (t27 ^ t33)
    t37, t38 = t36 ^ t23 ^ t33, t27 ^ t36
    t40 = t25 ^ (t29 & t38)
    t41, t42, t43, t44 = t40 ^ t37, t29 ^ t33, t29 ^ t40, t33 ^ t37
    t45 = t42 ^ t41

    z0, z1, z2, z3, z4, z5 = t44 & y15, t37 & y6, t33 & u7, t43 & y16, t40 & y1, t29 & y7
    z6, z7, z8, z9, z10, z11 = t42 & y11, t45 & y17, t41 & y10, t44 & y12, t37 & y3, t33 & y4
    z12, z13, z14, z15, z16, z17 = t43 & y13, t40 & y5, t29 & y2, t42 & y9, t45 & y14, t41 & y8
    t46, t48, t50, t53, t54 = z15 ^ z16, z5 ^ z13, z2 ^ z12, z0 ^ z3, z6 ^ z7
    t57, t58, t59 = t50 ^ t53, z4 ^ t46, z3 ^ t54
    t61, t62, t63, t64 = z14 ^ t57, z7 ^ z8 ^ t58, z9 ^ z10 ^ t58, z4 ^ t59
    t65, t66 = t61 ^ t62, z1 ^ t63
    s3 = t53 ^ t66
    return [
        ~(t48 ^ t46 ^ t57),
        ~(z12 ^ t48 ^ t62),
        z10 ^ z11 ^ t65,
        z2 ^ z5 ^ t66,
        s3,
        ~(z16 ^ z17 ^ t64 ^ t65),
        ~(t64 ^ s3),
        t59 ^ t63,
    ]
