"""What node and server agree on: which tensor is in which block, and the task of the two servers."""

from fsl_async import Ring, Task
from fsl_async.learning import StateMapping, Table
from private_words.task import SELECT, Net

STATE = Net().state_dict()
MAPPING = StateMapping.of(STATE, [Table("embedding", select=SELECT, block="words")])
MODEL = MAPPING.model(STATE)  # with which both servers begin
TASK = Task(
    name="private words",
    blocks=list(MAPPING.blocks),
    ring=Ring(64, fraction_bits=24),
    apply="mean",
    min_clients=2,
    max_clients=1_000,
)
