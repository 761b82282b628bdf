"""The names of the package `transport`, for a project that may have a `transport` of its own.

    from fsl_async.transport import …        # as `from transport import …`

Where another package hides ours, this import says so, with both places; see docs/adr/0016.
"""

from fsl_async.own_packages import passed_on

__all__, __getattr__, __dir__ = passed_on("transport")
