"""The files of docs/guides/deploy fit the options and the routes of `regard serve`, and one another."""

from __future__ import annotations

import re

import yaml
from tests.documentation.blocks import ROOT

from regard.cli.main import command_line
from regard.serving.page import ROUTES

FOLDER = ROOT / "docs" / "guides" / "deploy"


def options(arguments: list[str]) -> dict[str, object]:
    """The options of `regard serve`, read by the command itself."""
    command = command_line().commands["serve"]
    return command.make_context("serve", list(arguments)).params


def test_the_manifest_of_kubernetes():
    deployment, service = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text("utf-8"))
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    specification = deployment["spec"]
    pod = specification["template"]
    labels = pod["metadata"]["labels"]
    assert specification["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    parsed = options(container["args"])
    assert ports["http"] == parsed["port"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert set(mounts) == set(volumes)
    assert str(parsed["keys"]).startswith(mounts["keys"] + "/")
    assert volumes["keys"]["secret"]["secretName"] == "regard-keys"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    probes = {f"{kind}Probe" for kind in ("startup", "readiness", "liveness")}
    fields = set("name image args ports env resources volumeMounts securityContext".split())
    assert set(container) == fields | probes
    for entry in container["env"]:
        assert isinstance(entry["value"], str)  # Kubernetes refuses numbers


def test_the_file_of_compose():
    composition = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
    translate, balancer = (composition["services"][name] for name in ("translate", "balancer"))
    parsed = options(translate["command"])
    (secret,) = translate["secrets"]
    assert str(parsed["keys"]) == f"/run/secrets/{secret}"
    assert secret in composition["secrets"]
    (volume,) = translate["volumes"]
    assert volume == f"{next(iter(composition['volumes']))}:{parsed['downloads']}"
    content = composition["configs"][balancer["configs"][0]["source"]]["content"]
    assert f"server translate:{parsed['port']};" in content
    assert (ROOT / translate["build"]["dockerfile"]).is_file()
    assert "/health" in translate["healthcheck"]["test"][-1]


def test_the_image_starts_the_command():
    lines = (FOLDER / "Dockerfile").read_text("utf-8")
    assert 'ENTRYPOINT ["regard", "serve"]' in lines
    arguments = re.search(r"^CMD \[(.*)\]", lines, re.MULTILINE)[1]
    assert options(re.findall(r'"([^"]*)"', arguments))["host"] == "0.0.0.0"


def test_the_page_is_served():
    assert [route.path for route in ROUTES] == ["/", "/translate.js", "/translate.css"]
