"""What a round would cost, and which way of running it pays: `fsl-async plan`."""
