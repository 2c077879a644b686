"""One count for all tests that need only one: it takes ten seconds."""

import pytest

from ami.transports.objectstore.cost import sample


@pytest.fixture(scope="session")
def counted() -> sample.Sample:
    return sample.take(700, 1)
