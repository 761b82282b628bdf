from parties import *  # noqa: F403
