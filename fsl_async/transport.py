"""The names of the package `transport`, for a project that may have a `transport` of its own.

    from fsl_async.transport import …        # as `from transport import …`

Where another package hides ours, this import says so, with both places; see docs/adr/0016.
"""

from fsl_async.own_packages import own_package

_package = own_package("transport")
__all__ = list(_package.__all__)


def __getattr__(name: str) -> object:
    """A name of the package."""
    return getattr(_package, name)


def __dir__() -> list[str]:
    """The package's public names."""
    return list(__all__)
