"""`bench server`: what a server takes for each client, in processes as they are deployed, and the model's constants."""
