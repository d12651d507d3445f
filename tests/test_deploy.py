"""What stands in deploy/ is judged by those it is for: systemd, HAProxy, the schemas of Compose and of Kubernetes.

What no schema knows is compared with the gateway: its ports, its probes, its user, its variables, its timeouts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from lightkube.models import apps_v1, autoscaling_v2, core_v1, networking_v1, policy_v1

from configs import load_config
from gateway import envoy
from gateway.conftest import serve_config
from gateway.raw_exchange import ask
from test_docs import blocks
from toolwire.gateway.http.request_parser import MAX_HEAD
from toolwire.gateway.http.server import IDLE_SECONDS
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.store import state_folder
from toolwire.gateway.store.postgres_pool import POOL_SIZE

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml*"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"toolwire:{VERSION}"
PORT = 8642
STATE_FOLDER = "/var/lib/toolwire"


def read(path: str) -> str:
    return (DEPLOY / path).read_text()


def document(path: str) -> Any:
    return yaml.safe_load(read(path))


@pytest.fixture(scope="module")
def config() -> Config:
    return read_config(DEPLOY / "toolwire.toml")


def read_config(file: Path) -> Config:
    """By the real reader, with what the examples of an environment set."""
    environ = dict.fromkeys(variables(), "x" * 32)
    return load_config(file, {**environ, "TOOLWIRE_STORE_URL": "postgresql://toolwire@postgres/toolwire"})


# --- the configuration ------------------------------------------------------------------------------------------------


def test_the_configuration_is_right(config: Config) -> None:
    assert [problem.message for problem in config.warnings] == []
    assert {"openai", "anthropic", "gemini"} <= config.providers.keys()
    assert (config.store.url, config.store.url_env) == ("", "TOOLWIRE_STORE_URL")


def test_nobody_is_let_in_by_the_example(config: Config) -> None:
    assert [key.sha256 for key in config.server.keys] == ["0" * 64]


def test_kubernetes_has_the_same_configuration() -> None:
    assert document("kubernetes/configuration.yaml")["data"] == {"toolwire.toml": read("toolwire.toml")}


# --- systemd ----------------------------------------------------------------------------------------------------------

UNIT = "systemd/toolwire@.service"
KNOWN = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        "Type", "ExecStart", "ExecReload", "EnvironmentFile", "Restart", "RestartSec", "KillMode", "TimeoutStopSec",
        "DynamicUser", "StateDirectory", "Environment", "LimitNOFILE", "CapabilityBoundingSet", "LockPersonality", "NoNewPrivileges", "PrivateDevices",
        "PrivateTmp", "ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs",
        "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem", "RestrictAddressFamilies",
        "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter",
        "UMask",
    },
    "Install": {"WantedBy"},
}  # fmt: skip
"""Directives of systemd's manual that we use: where systemd itself is not here to judge, this finds a misspelling."""


def directives() -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in read(UNIT).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield section, name, value


def test_the_unit_has_only_directives_that_there_are() -> None:
    assert [(section, name) for section, name, _ in directives() if name not in KNOWN[section]] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here: its verdict was left out")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "toolwire@.service"
    unit.write_text(read(UNIT).replace("/opt/toolwire/bin/toolwire", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "toolwire" in line]) == (0, [])


def test_the_unit_waits_for_streams_and_tells_only_the_gateway(config: Config) -> None:
    service = {name: value for section, name, value in directives() if section == "Service"}
    assert int(service["TimeoutStopSec"]) > config.server.timeouts.shutdown
    # With a signal for each, workers would get two: one of systemd, one passed on, and the second cuts streams.
    assert service["KillMode"] == "mixed"
    assert f"%S/{service['StateDirectory']}" == f"{service['Environment'].removeprefix('XDG_STATE_HOME=')}/toolwire"
    assert (service["NoNewPrivileges"], service["ProtectSystem"], service["DynamicUser"]) == ("yes", "strict", "yes")


def test_the_unit_starts_the_gateway_as_it_can_be_started() -> None:
    from toolwire.cli import main

    words = next(value for _, name, value in directives() if name == "ExecStart").split()[1:]
    with pytest.raises(SystemExit) as done:
        main([*(word.replace("%i", str(PORT)) for word in words), "--help"])
    assert done.value.code == 0


# --- HAProxy ----------------------------------------------------------------------------------------------------------

BALANCERS = ("systemd/haproxy.cfg", "compose/haproxy.cfg")


@pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not here: its verdict was left out")
@pytest.mark.parametrize("path", BALANCERS)
def test_haproxy_takes_its_configuration(path: str) -> None:
    done = subprocess.run(["haproxy", "-c", "-f", str(DEPLOY / path)], capture_output=True, text=True, check=False)
    assert (done.returncode, "warning" in done.stderr.lower()) == (0, False), done.stderr


@pytest.mark.parametrize("path", BALANCERS)
def test_the_balancer_repeats_nothing_and_waits_long_enough(path: str, config: Config) -> None:
    text = read(path)
    assert re.findall(r"^ *retry-on (.*)$", text, re.MULTILINE) == ["conn-failure"]
    for side in ("client", "server"):
        (seconds,) = re.findall(rf"^ *timeout {side} (\d+)s$", text, re.MULTILINE)
        assert int(seconds) > config.server.timeouts.first_byte
    assert "option httpchk GET /readyz" in text
    assert re.search(r"^ *option abortonclose$", text, re.MULTILINE)  # clients that leave free their gateway


def test_both_balancers_behave_alike() -> None:
    ours, theirs = (re.search(r"^defaults\n.*?^(?=\S)", read(path), re.MULTILINE | re.DOTALL) for path in BALANCERS)
    assert ours
    assert theirs
    assert ours[0] == theirs[0]


def test_the_balancer_of_systemd_knows_the_units() -> None:
    ports = re.findall(r"^ *server (\d+) 127\.0\.0\.1:(\d+)$", read("systemd/haproxy.cfg"), re.MULTILINE)
    units = re.findall(r"toolwire@(\d+)", read(UNIT))
    assert ports == [(unit, unit) for unit in units]
    assert len(units) == 3


# --- Envoy ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def front() -> Any:
    """Envoy's listener and its cluster."""
    resources = document("envoy/envoy.yaml")["static_resources"]
    (listener,), (cluster,) = resources["listeners"], resources["clusters"]
    return listener, cluster


@pytest.mark.skipif(not envoy.IS_HERE, reason="Envoy is not here: its verdict was left out")
def test_envoy_takes_its_configuration() -> None:
    command = [str(envoy.PROGRAM), "--mode", "validate", "--config-path", str(envoy.CONFIGURATION)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "deprecated" in done.stderr.lower()) == (0, False), done.stderr


def test_envoy_repeats_nothing_buffers_nothing_and_waits_long_enough(front: Any, config: Config) -> None:
    listener, cluster = front
    (connections,) = listener["filter_chains"][0]["filters"]
    manager = connections["typed_config"]
    (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert route["route"]["retry_policy"]["retry_on"] == "connect-failure"
    assert route["route"]["timeout"] == "0s"
    assert int(manager["stream_idle_timeout"].removesuffix("s")) > config.server.timeouts.first_byte
    assert [one["name"] for one in manager["http_filters"]] == ["envoy.filters.http.router"]
    assert manager["max_request_headers_kb"] * 1024 == MAX_HEAD
    options = cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    assert int(options["common_http_protocol_options"]["idle_timeout"].removesuffix("s")) < IDLE_SECONDS


def test_envoy_asks_whether_gateways_are_ready_and_does_not_blame_them(front: Any) -> None:
    _, cluster = front
    (check,) = cluster["health_checks"]
    assert check["http_health_check"] == {"path": "/readyz"}
    assert check["interval"] == check["no_traffic_interval"] == "1s"
    outliers = cluster["outlier_detection"]
    assert outliers["split_external_local_origin_errors"]
    assert {value for name, value in outliers.items() if name.startswith("enforcing_")} == {0}
    assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}


def test_envoy_knows_the_units_of_systemd(front: Any) -> None:
    _, cluster = front
    endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    ports = [one["endpoint"]["address"]["socket_address"]["port_value"] for one in endpoints]
    assert ports == [int(unit) for unit in re.findall(r"toolwire@(\d+)", read(UNIT))]


# --- Compose ----------------------------------------------------------------------------------------------------------


def compose() -> Any:
    return document("compose/compose.yaml")


def test_compose_takes_its_file() -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.validate(compose(), schema)
    wrong = compose()
    wrong["services"]["toolwire"]["stop_grace_periode"] = "1s"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_compose_runs_a_single_one_with_its_state_in_a_volume(tmp_path: Path) -> None:
    single = document("single/compose.yaml")
    jsonschema.validate(single, get_builtin_schema("vendor.compose-spec"))
    (ours,) = single["services"].values()
    theirs = compose()["services"]["toolwire"]
    for same in ("build", "image", "stop_grace_period", "read_only", "tmpfs", "cap_drop", "security_opt", "restart"):
        assert ours[same] == theirs[same], same
    mounted, state = ours["volumes"]
    source, target, mode = mounted.split(":")
    assert (f"TOOLWIRE_CONFIG={target}" in DOCKERFILE, mode) == (True, "ro")
    assert state == f"{next(iter(single['volumes']))}:{STATE_FOLDER}"
    config = read_config(DEPLOY / "single" / source)
    assert [problem.message for problem in config.warnings] == []
    assert config.server.store_keys  # nobody is served without a key
    assert ours["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    # `docker compose exec toolwire toolwire keys new NAME --store`
    assert 'PATH="/venv/bin:$PATH"' in re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)[-1]


def test_compose_runs_three_of_our_image(config: Config) -> None:
    services = compose()["services"]
    ours = services["toolwire"]
    assert (ours["image"], ours["deploy"]) == (IMAGE, {"replicas": 3})
    assert (DEPLOY / "compose" / ours["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert int(ours["stop_grace_period"].removesuffix("s")) > config.server.timeouts.shutdown
    assert (ours["read_only"], ours["cap_drop"], ours["tmpfs"]) == (True, ["ALL"], ["/tmp"])
    mounted, state = ours["volumes"]
    assert state == STATE_FOLDER
    source, target, mode = mounted.split(":")
    assert (DEPLOY / "compose" / source).resolve() == DEPLOY / "toolwire.toml"
    assert (f"TOOLWIRE_CONFIG={target}" in DOCKERFILE, mode) == (True, "ro")
    assert ours["environment"]["TOOLWIRE_STORE_URL"].endswith("@postgres:5432/toolwire")
    assert services["postgres"]["environment"]["POSTGRES_DB"] == "toolwire"


def test_the_balancer_of_compose_finds_them() -> None:
    text = read("compose/haproxy.cfg")
    ((count, name, port),) = re.findall(r"^ *server-template \S+ (\d+) (\w+):(\d+)$", text, re.MULTILINE)
    assert int(count) >= 2 * compose()["services"][name]["deploy"]["replicas"]
    assert f"EXPOSE {port}" in DOCKERFILE
    assert compose()["services"]["balancer"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert f"bind :{PORT}" in text


# --- Kubernetes -------------------------------------------------------------------------------------------------------

TYPES: dict[tuple[str, str], Any] = {
    ("apps/v1", "Deployment"): apps_v1.Deployment,
    ("v1", "Service"): core_v1.Service,
    ("v1", "ConfigMap"): core_v1.ConfigMap,
    ("v1", "Secret"): core_v1.Secret,
    ("policy/v1", "PodDisruptionBudget"): policy_v1.PodDisruptionBudget,
    ("networking.k8s.io/v1", "NetworkPolicy"): networking_v1.NetworkPolicy,
    ("networking.k8s.io/v1", "Ingress"): networking_v1.Ingress,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): autoscaling_v2.HorizontalPodAutoscaler,
    ("v1", "PersistentVolumeClaim"): core_v1.PersistentVolumeClaim,
}


def schema_of(kind: Any) -> Any:
    """The JSON Schema of a type as Kubernetes publishes it; what it does not know is refused."""
    schema = msgspec.json.schema(kind)
    for part in schema["$defs"].values():
        if "properties" in part:
            part["additionalProperties"] = False
    return schema


def check_manifest(manifest: Any) -> None:
    jsonschema.validate(manifest, schema_of(TYPES[manifest["apiVersion"], manifest["kind"]]))


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_takes_its_manifest(path: Path) -> None:
    check_manifest(yaml.safe_load(path.read_text()))


def test_the_judge_finds_mistakes() -> None:
    for wrong in (
        lambda pod: pod.update(terminationGracePeriod=1),
        lambda pod: pod.update(terminationGracePeriodSeconds="330s"),
        lambda pod: pod["containers"][0].pop("name"),
        lambda pod: pod["containers"][0]["livenessProbe"]["httpGet"].update(paths="/"),
    ):
        manifest = document("kubernetes/deployment.yaml")
        wrong(manifest["spec"]["template"]["spec"])
        with pytest.raises(jsonschema.ValidationError):
            check_manifest(manifest)


def test_all_that_is_needed_is_there() -> None:
    found = {yaml.safe_load(path.read_text())["kind"] for path in KUBERNETES}
    assert found == {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service"}
    # `kubectl apply --filename` takes a folder's files by their endings, and must not take an empty secret.
    assert [path.name for path in KUBERNETES if path.suffix != ".yaml"] == ["secret.yaml.example"]


@pytest.fixture(scope="module")
def pod() -> Any:
    return document("kubernetes/deployment.yaml")["spec"]["template"]["spec"]


def test_kubernetes_runs_three_of_our_image(pod: Any) -> None:
    spec = document("kubernetes/deployment.yaml")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (3, 0)
    assert pod["containers"][0]["image"] == IMAGE
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert document("kubernetes/service.yaml")["spec"]["selector"] == labels
    assert document("kubernetes/disruption.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert document("kubernetes/network.yaml")["spec"]["podSelector"]["matchLabels"] == labels


def test_kubernetes_lets_streams_finish(pod: Any, config: Config) -> None:
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause > 0
    assert pod["terminationGracePeriodSeconds"] > pause + config.server.timeouts.shutdown


def test_kubernetes_gives_it_no_rights(pod: Any) -> None:
    (container,) = pod["containers"]
    (uid,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, int(uid))
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False


def test_the_state_folder_of_the_image_belongs_to_its_user_and_is_a_volume(pod: Any) -> None:
    """The rest can be read-only. Without it every stored response, and every request under a limit in dollars, fails."""
    environment = dict(
        word.split("=", 1) for line in re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()
    )
    assert str(state_folder(environment)) == STATE_FOLDER
    (made,) = re.findall(r"install --directory (.*)$", DOCKERFILE, re.MULTILINE)
    assert made == f"--owner toolwire --group toolwire --mode 0700 {STATE_FOLDER}"
    assert DOCKERFILE.index(f"{made}\n") < DOCKERFILE.index(f"VOLUME {STATE_FOLDER}\n")  # a new volume is a copy of it
    ids = re.findall(r"--[ug]id (\d+)", DOCKERFILE)
    assert {*map(int, ids)} == {pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")}
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts[STATE_FOLDER] == {"name": "state", "mountPath": STATE_FOLDER}
    assert {"name": "state", "emptyDir": {}} in pod["volumes"]
    for page in ("guides/gateway.md", "start/install.md"):
        assert f"--volume toolwire:{STATE_FOLDER} " in (ROOT / "docs" / page).read_text()


def test_kubernetes_finds_the_gateway_and_its_file(pod: Any) -> None:
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}" in DOCKERFILE
    (served,) = document("kubernetes/service.yaml")["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (named,) = container["env"]
    (file,) = document("kubernetes/configuration.yaml")["data"]
    assert named == {"name": "TOOLWIRE_CONFIG", "value": f"{mounts['configuration']}/{file}"}
    assert pod["volumes"][0]["configMap"]["name"] == document("kubernetes/configuration.yaml")["metadata"]["name"]
    assert (
        container["envFrom"][0]["secretRef"]["name"] == document("kubernetes/secret.yaml.example")["metadata"]["name"]
    )


def test_the_probes_are_answered(pod: Any, tmp_path: Path) -> None:
    (container,) = pod["containers"]
    probed = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert probed == {"/livez", "/readyz"}
    (tmp_path / "toolwire.toml").write_text('[server]\nlog_format = "none"\n[store]\nurl = "none"\n')
    with serve_config(tmp_path / "toolwire.toml") as url:
        port = int(url.rpartition(":")[2])
        assert [ask(port, "GET", path).status for path in sorted(probed)] == [200, 200]


# --- the guide --------------------------------------------------------------------------------------------------------

GUIDE = ROOT / "docs" / "guides" / "scale.md"


def examples(language: str) -> list[str]:
    return [block.code for block in blocks(GUIDE) if block.language == language]


def test_the_guides_configuration_is_that_of_the_files(tmp_path: Path, config: Config) -> None:
    (example,) = examples("toml")
    (tmp_path / "toolwire.toml").write_text(example)
    shown = read_config(tmp_path / "toolwire.toml")
    assert (shown.store.url_env, shown.store.key_env) == (config.store.url_env, config.store.key_env)


@pytest.mark.parametrize("example", examples("sh"))
def test_the_guides_commands_can_be_typed(example: str) -> None:
    subprocess.run(["sh", "-n"], input=example, text=True, check=True)
    for path in re.findall(r"(?<![\w/])deploy/[\w./@-]+", example):
        assert (ROOT / path).exists(), path
    assert set(re.findall(r"toolwire:([\d.]+)", example)) <= {VERSION}
    for backend in re.findall(r"set server (\w+)/", example):
        assert f"backend {backend}\n" in read("systemd/haproxy.cfg")
    ports = [port for ports in re.findall(r"for port in ([\d ]+);", example) for port in ports.split()]
    assert not ports or ports == re.findall(r"toolwire@(\d+)", read(UNIT))


def test_the_guides_figures_are_true(config: Config) -> None:
    text = " ".join(GUIDE.read_text().split())
    store, timeouts = config.store, config.server.timeouts
    for words in (
        f"`background_lease` seconds ({store.background_lease:g})",
        f"`ttl` ({store.ttl / 86400:g} days)",
        f"`max_bytes` ({store.max_bytes / 1024**3:g} GiB,",
        f"`first_byte` ({timeouts.first_byte:g} s)",
        f"`[server.timeouts] shutdown` ({timeouts.shutdown:g} s)",
        f"at most {POOL_SIZE} connections",
    ):
        assert words in text


# --- secrets ----------------------------------------------------------------------------------------------------------

EXAMPLES = ("systemd/environment.example", "compose/.env.example", "single/.env.example")


def variables() -> dict[str, str]:
    """What the examples of an environment set."""
    lines = [line.partition("=") for path in EXAMPLES for line in read(path).splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in lines} | document("kubernetes/secret.yaml.example")["stringData"]


def test_variables_are_known(config: Config) -> None:
    """Each is read by the configuration, by a provider that the guide lists, or by PostgreSQL's image."""
    reference = (ROOT / "docs" / "guides" / "providers.md").read_text()
    known = {config.store.url_env, config.store.key_env, "POSTGRES_PASSWORD"}
    assert [name for name in variables() if name not in known and f"`{name}`" not in reference] == []


def test_no_secret_stands_here() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            for password in re.findall(r"://\w+:(.*?)@", path.read_text()):
                assert password == "PASSWORD" or password.startswith("${POSTGRES_PASSWORD"), path
    assert {value for name, value in variables().items() if not name.endswith("_URL")} == {""}


def test_what_is_filled_in_is_not_committed() -> None:
    assert {"/deploy/compose/.env", "/deploy/single/.env"} <= {*(ROOT / ".gitignore").read_text().splitlines()}


def test_the_network_policy_opens_only_the_gateways_port() -> None:
    rules = document("kubernetes/network.yaml")["spec"]
    assert rules["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in rules["ingress"]] == [[{"protocol": "TCP", "port": "http"}]]
    assert all(peer for rule in rules["ingress"] for peer in rule["from"])
    assert {port["port"] for rule in rules["egress"] for port in rule["ports"]} == {53, 443, 5432}
