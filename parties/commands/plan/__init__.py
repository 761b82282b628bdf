"""`fsl-async plan`: what a round would cost, and which settings would cost least."""
