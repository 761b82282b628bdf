"""`fsl-async bench`: how fast this machine is at each part, compared with what it could be at most."""

from parties.commands.bench.results import BenchReport
from parties.commands.bench.run import Suite, run_bench
from parties.commands.bench.workload import Options

__all__ = ["BenchReport", "Options", "Suite", "run_bench"]
