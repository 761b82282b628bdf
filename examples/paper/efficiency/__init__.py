"""The experiments on parameters, seconds and bytes.

`experiments` says what there is, with all settings; `hashing`, `computation`, `communication` and `din` compute the
cells, through the functions that clients and servers run; `printed` has the paper's figures, and `sections` and
`pictures` set them beside ours.
"""
