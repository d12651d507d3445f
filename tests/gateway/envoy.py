"""Envoy, where its package can be installed, with the configuration in deploy/: only its addresses are others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.raw_exchange import ask
from waits import PATIENCE, wait_until

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
PROGRAM = Path(sys.executable).parent / "envoy"
IS_HERE = PROGRAM.exists()


class Envoy:
    """It reads from a file where the gateways are, and says by its admin address what it knows of them."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-"))
        self._endpoints = self._folder / "gateways.json"
        self._write_endpoints(())
        (self._folder / "envoy.json").write_text(json.dumps(self._configuration()))
        command = [str(PROGRAM), "--config-path", "envoy.json", "--use-dynamic-base-id", "--concurrency", "1"]
        self._process = subprocess.Popen(
            [*command, "--admin-address-path", "admin"],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: bool(self._find_port()))
        self.port: int = self._find_port()

    def _configuration(self) -> Any:
        configuration = yaml.safe_load(CONFIGURATION.read_text())
        address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
        configuration["admin"]["address"] = address
        (listener,) = configuration["static_resources"]["listeners"]
        listener["address"] = address
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        # The gateways of the tests have no client keys, so they refuse what is forwarded for somebody.
        manager |= {"use_remote_address": False, "skip_xff_append": True}
        (cluster,) = configuration["static_resources"]["clusters"]
        del cluster["load_assignment"]
        source = {"path": str(self._endpoints), "watched_directory": {"path": str(self._folder)}}
        cluster["type"] = "EDS"
        cluster["eds_cluster_config"] = {
            "eds_config": {"path_config_source": source, "resource_api_version": "V3"},
        }
        return {"node": {"id": "test", "cluster": "test"}, **configuration}

    def _write_endpoints(self, ports: Sequence[int]) -> None:
        addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports]
        resource = {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "gateways",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}} for address in addresses]}],
        }
        written = self._folder / "written.json"
        written.write_text(json.dumps({"resources": [resource]}))
        os.replace(written, self._endpoints)

    def _ask(self, path: str) -> Any:
        assert self._process.poll() is None, "Envoy has ended"
        address = (self._folder / "admin").read_text()
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def _find_port(self) -> int:
        """Of its listener; 0 as long as it is not there."""
        try:
            listeners = self._ask("/listeners?format=json").get("listener_statuses", ())
        except (FileNotFoundError, ValueError, OSError):
            return 0
        ports = [one["local_address"]["socket_address"]["port_value"] for one in listeners]
        return ports[0] if ports else 0

    def _ready_ports(self) -> set[int]:
        (cluster,) = self._ask("/clusters?format=json")["cluster_statuses"]
        return {
            host["address"]["socket_address"]["port_value"]
            for host in cluster.get("host_statuses", ())
            if not host["health_status"].get("failed_active_health_check")
        }

    def set_ports(self, ports: Sequence[int]) -> None:
        self._write_endpoints(ports)
        # Its main thread knows them first. One request later the thread that passes requests on knows them, too.
        wait_until(lambda: self._ready_ports() == set(ports) and ask(self.port, "GET", "/livez").status == 200)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
        shutil.rmtree(self._folder)
