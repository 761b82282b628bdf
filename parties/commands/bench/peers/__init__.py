"""`fsl-async bench peers`: evaluation of trees by this library beside the same by others, on one processor."""
