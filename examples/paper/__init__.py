"""The paper's experiments, made again by the program that implements it: `python -m examples.paper`, or `make paper`.

An experiment is a table or a figure. It is made of cells: computations with parameters, each with one JSON file of its
result in docs/paper/. `running` computes the cells that have no result yet, and `page` turns the results into
docs/paper-results.md and its pictures.
"""
