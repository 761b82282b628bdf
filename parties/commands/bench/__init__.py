"""`fsl-async bench`: how fast this machine is at each part, compared with what it could be at most."""
