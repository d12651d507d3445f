"""The Helm chart, judged by Helm itself and by the types of Kubernetes. `make test-deploy` builds Helm where Go is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from test_deploy import DEPLOY, ROOT, VERSION, check_manifest, document, read_config

CHART = DEPLOY / "helm" / "toolwire"
TEAM = DEPLOY / "helm" / "team.yaml"
BUILT = ROOT / ".helm" / "helm"
HELM = str(BUILT) if BUILT.exists() else shutil.which("helm")
KUBERNETES = "1.31.0"
needs_helm = pytest.mark.skipif(
    not HELM, reason="Helm is not here: its verdict was left out (`make test-deploy` builds it)"
)
SETTINGS = {
    "one": (),
    "team": ("--values", str(TEAM)),
    "without a volume": ("--set", "persistence.enabled=false,secret.values.OPENAI_API_KEY=x,serviceAccountName=cloud"),
    "all that can be set": (
        *("--values", str(TEAM), "--set", "image.pullSecrets[0].name=registry,podAnnotations.a=b,nodeSelector.a=b"),
        *(
            "--set-json",
            'tolerations=[{"key": "a", "operator": "Exists"}]',
            "--set-json",
            'affinity={"nodeAffinity": {}}',
        ),
        *("--set", "ingress.tlsSecret=,service.type=LoadBalancer,monitor.labels.release=prometheus,image.tag=v9"),
    ),
    "a volume that is there": ("--set", "persistence.existingClaim=mine,podAnnotations.a=b"),
}


def run_helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False)


def render(name: str, release: str = "toolwire") -> dict[str, Any]:
    """The manifests of these settings, by kind: there is one of each."""
    done = run_helm("template", release, str(CHART), "--kube-version", KUBERNETES, *SETTINGS[name])
    assert done.returncode == 0, done.stderr
    manifests = [one for one in yaml.safe_load_all(done.stdout) if one]
    kinds = {one["kind"]: one for one in manifests}
    assert len(kinds) == len(manifests)
    return kinds


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_its_values_are_those_of_the_schema() -> None:
    schema = document("helm/toolwire/values.schema.json")
    jsonschema.validate(values(), schema)
    jsonschema.validate({**values(), **yaml.safe_load(TEAM.read_text())}, schema)
    described = {name for name in schema["properties"] if name != "global"}  # `global` is Helm's own
    assert described == values().keys()
    for name, part in values().items():
        if isinstance(part, dict) and "properties" in schema["properties"][name]:
            assert part.keys() == schema["properties"][name]["properties"].keys(), name


@pytest.mark.parametrize("file", [CHART / "values.yaml", TEAM], ids=["one", "team"])
def test_its_configuration_is_right(file: Path, tmp_path: Path) -> None:
    written = yaml.safe_load(file.read_text())
    (tmp_path / "toolwire.toml").write_text(written["configuration"])
    config = read_config(tmp_path / "toolwire.toml")
    assert config.server.store_keys  # so nobody is served without a key
    warnings = [problem.message for problem in config.warnings]
    if written.get("monitor", {}).get("enabled"):
        assert config.server.metrics_listen.endswith(":9100")
        assert written["networkPolicy"]["enabled"]  # which says who may reach the metrics
        assert warnings == ["everybody who can reach this address can read the metrics"]
    else:
        assert warnings == []


@needs_helm
@pytest.mark.parametrize("settings", ["one", "team"])
def test_helm_finds_nothing_wrong(settings: str) -> None:
    done = run_helm("lint", "--strict", str(CHART), "--kube-version", KUBERNETES, *SETTINGS[settings])
    assert done.returncode == 0, done.stdout


@needs_helm
@pytest.mark.parametrize("settings", SETTINGS)
def test_kubernetes_takes_what_it_renders(settings: str) -> None:
    rendered = render(settings)
    monitor = rendered.pop("ServiceMonitor", None)
    for manifest in rendered.values():
        check_manifest(manifest)
    if monitor:
        ports = {port["name"] for port in rendered["Service"]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


@needs_helm
def test_what_is_made_for_each() -> None:
    one = {"ConfigMap", "Deployment", "PersistentVolumeClaim", "Secret", "Service"}
    assert render("one").keys() == one
    team = one - {"PersistentVolumeClaim", "Secret"}
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor"}
    assert render("team").keys() == team | more


@needs_helm
def test_its_pods_are_those_of_the_plain_manifests() -> None:
    """But for names and labels, and the port of the metrics."""
    ours = render("team")["Deployment"]["spec"]["template"]["spec"]
    plain = document("kubernetes/deployment.yaml")["spec"]["template"]["spec"]
    for pod in (ours, plain):
        pod.pop("topologySpreadConstraints")
        pod["containers"][0].pop("imagePullPolicy", None)
    assert ours["containers"][0]["ports"].pop() == {"name": "metrics", "containerPort": 9100}
    assert ours == plain


@needs_helm
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("release", ["toolwire", "gateway", "my-toolwire"])
def test_its_parts_find_each_other(settings: str, release: str) -> None:
    rendered = render(settings, release)
    name = rendered["Deployment"]["metadata"]["name"]
    assert "toolwire" in name
    assert {one["metadata"]["name"] for one in rendered.values()} == {name}
    labels = rendered["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [rendered["Service"]["spec"]["selector"]]
    selectors += [
        rendered[kind]["spec"]["selector"]["matchLabels"]
        for kind in ("Deployment", "PodDisruptionBudget")
        if kind in rendered
    ]
    selectors += (
        [rendered["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]] if "NetworkPolicy" in rendered else []
    )
    assert all(selector.items() <= labels.items() for selector in selectors)
    if "Ingress" in rendered:
        (rule,) = rendered["Ingress"]["spec"]["rules"]
        assert rule["http"]["paths"][0]["backend"]["service"]["name"] == rendered["Service"]["metadata"]["name"]


@needs_helm
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("replicas=2", "persistence.enabled"),
        ("autoscaling.enabled=true", "persistence.enabled"),
        ("replica=2", "replica"),
        ("monitor.enabled=true", "metrics_listen"),
        ("replicas=0", "replicas"),
        ("persistence.size=much", "size"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_mistakes_are_refused(change: str, said: str) -> None:
    done = run_helm("template", "x", str(CHART), "--kube-version", KUBERNETES, "--set", change)
    assert done.returncode != 0
    assert said in done.stderr


def test_streams_pass_the_ingress() -> None:
    config = read_config(DEPLOY / "toolwire.toml")
    notes = values()["ingress"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/"
    assert notes[f"{prefix}proxy-buffering"] == "off"
    assert int(notes[f"{prefix}proxy-read-timeout"]) > config.server.timeouts.first_byte
    assert notes[f"{prefix}proxy-body-size"] == f"{config.server.max_body // 1024**2}m"
    # nginx tries another gateway after an error only if nothing was sent: it never repeats a POST without `non_idempotent`.
    assert notes[f"{prefix}proxy-next-upstream"] == "error"


def test_the_judge_of_helm_has_a_pinned_version() -> None:
    module = (ROOT / "requirements" / "helm" / "go.mod").read_text()
    (version,) = re.findall(r"helm\.sh/helm/v3 (v[\d.]+)", module)
    assert f"helm.sh/helm/v3 {version} h1:" in (ROOT / "requirements" / "helm" / "go.sum").read_text()
