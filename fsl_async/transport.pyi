from transport import *  # noqa: F403
