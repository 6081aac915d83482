"""The names of services, as health and reflection spell them."""

from services.orchestrator.servicer import ADMIN_SERVICE, CLIENT_SERVICE, LINK_SERVICES


def test_names_are_the_full_names_of_the_definitions() -> None:
    assert CLIENT_SERVICE == "stagemesh.api.orchestrator.v1.OrchestratorService"
    assert ADMIN_SERVICE == "stagemesh.api.admin.v1.AdminService"
    assert LINK_SERVICES == (
        "stagemesh.api.orchestrator.v1.GatewayLinkService",
        "stagemesh.api.orchestrator.v1.PeerService",
        "stagemesh.api.stage.v1.PayloadService",
    )
