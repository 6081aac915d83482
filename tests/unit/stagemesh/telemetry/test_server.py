"""The rule about the metrics address."""

import pytest

from stagemesh.errors import BadSettings
from stagemesh.telemetry import start_metrics


async def test_metrics_bind_loopback_unless_an_operator_says_so() -> None:
    with pytest.raises(BadSettings, match="--insecure"):
        await start_metrics("0.0.0.0:9090")
