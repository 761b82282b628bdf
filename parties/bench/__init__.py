"""`fsl-async bench`: how fast this machine is at each part, compared with what it could be at most."""

from parties.bench.results import BenchReport
from parties.bench.run import Suite, run_bench
from parties.bench.workload import Options

__all__ = ["BenchReport", "Options", "Suite", "run_bench"]
