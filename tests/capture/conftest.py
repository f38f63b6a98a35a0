"""Fixtures of tests of explain and dry runs."""

import pytest
from capture.training import small_training


@pytest.fixture
def training(device):
    """(autodiff device, model, optimizer, step)"""
    return small_training(device)
