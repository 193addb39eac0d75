"""One thread: the products in these tests are so small that threads wait for each other longer than they compute.

And a store of each kind for tests that hold for all.
"""

import pytest
import torch

from tests.support.kv_stores import STORES, Make

torch.set_num_threads(1)


@pytest.fixture(params=sorted(STORES))
def make(request: pytest.FixtureRequest) -> Make:
    return STORES[request.param]
