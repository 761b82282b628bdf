"""`fsl-async bench`: how many clients this host serves for a task."""
