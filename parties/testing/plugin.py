"""The plugin, where environments that were installed earlier look for it."""

import sys

from fsl_async import pytest_plugin

sys.modules[__name__] = pytest_plugin
