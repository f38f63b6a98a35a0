"""The driver contract again, on a page's main thread instead of a worker."""

import pytest
from browser.test_driver import *  # noqa: F403

pytestmark = pytest.mark.browser(context="page")
