"""A round's sum on workers of its operator's: what the server tells them, what they do, and how they are reached.

`cluster` is what a kind of cluster must offer, and `dask_cluster` is Dask's; another kind is another file beside it.
"""
