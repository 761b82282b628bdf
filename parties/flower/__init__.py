"""Flower with private rows and exact sums: a mod for a ClientApp, and a Strategy for a ServerApp (extra `flower`).

    app = ClientApp(mods=[SubmodelMod(MAPPING, STATE, rows=rows_of)])      # the train function stays as it is

    strategy = SubmodelStrategy(MAPPING, STATE, operator="s0.toml", client="coordinator.toml")
    strategy.start(grid=grid, num_rounds=4, evaluate_fn=accuracy)

Flower asks its nodes, and hears metrics that its apps allow by name. Rows, models and updates move between each client
and the two servers of fsl-async, and never through Flower's own server.
"""

try:
    import flwr.app  # noqa: F401
except ImportError as error:
    raise ImportError(
        'parties.flower needs flwr 1.41, which is not installed here: pip install "fsl-async[flower]", in an '
        "environment of its own"
    ) from error

from parties.flower.mod import SubmodelMod
from parties.flower.strategy import SubmodelStrategy

__all__ = ["SubmodelMod", "SubmodelStrategy"]
