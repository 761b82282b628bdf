"""AES on vectors of blocks: instruction sets, their code, and the vocabulary that the kernels are written in."""
