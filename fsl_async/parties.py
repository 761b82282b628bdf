"""The names of the package `parties`, for a project that may have a `parties` of its own.

    from fsl_async.parties import …        # as `from parties import …`

Where another package hides ours, this import says so, with both places; see docs/adr/0016.
"""

from fsl_async.own_packages import passed_on

__all__, __getattr__, __dir__ = passed_on("parties")
