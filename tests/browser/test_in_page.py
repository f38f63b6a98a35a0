"""The driver's and the device layer's tests again, on a page's main thread instead of a worker."""

import pytest
from browser.test_device import *  # noqa: F403
from browser.test_driver import *  # noqa: F403

pytestmark = pytest.mark.browser(context="page")
