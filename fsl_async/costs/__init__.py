"""What a round costs, from public parameters alone: bytes, AES blocks, variants, and the paper's formulae."""
