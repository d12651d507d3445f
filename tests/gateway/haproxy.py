"""HAProxy, where it is installed, with the configuration in deploy/: only its address and the ports are others."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from waits import PATIENCE

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "systemd" / "haproxy.cfg"
IS_HERE = shutil.which("haproxy") is not None


class Haproxy:
    """It is told by its admin socket where the gateways are."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="toolwire-")  # short: the name of a socket has little room
        text = CONFIGURATION.read_text().replace("/run/haproxy", self._folder)
        self._slots: dict[str, int] = dict.fromkeys(re.findall(r"^ *server (\S+)", text, re.MULTILINE), 0)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.port: int = bound.getsockname()[1]
            file = Path(self._folder, "haproxy.cfg")
            file.write_text(re.sub(r"^( *bind) .*$", rf"\1 fd@{bound.fileno()}", text, flags=re.MULTILINE))
            command = ["haproxy", "-W", "-db", "-f", str(file)]
            self._process = subprocess.Popen(
                command, pass_fds=[bound.fileno()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        self._wait_for_socket()

    def _wait_for_socket(self) -> None:
        while self._process.poll() is None:
            try:
                self._say("show info")
            except (FileNotFoundError, ConnectionRefusedError):
                continue
            return
        raise AssertionError("HAProxy has ended")

    def set_ports(self, ports: Sequence[int]) -> None:
        for slot, port in self._slots.items():
            if port not in ports:
                self._slots[slot] = 0
                self._say(f"set server gateways/{slot} state drain")
        for port in ports:
            if port not in self._slots.values():
                slot = next(slot for slot, taken in self._slots.items() if not taken)
                self._slots[slot] = port
                self._say(f"set server gateways/{slot} addr 127.0.0.1 port {port}")
                self._say(f"set server gateways/{slot} state ready")
                self._say(f"set server gateways/{slot} health up")

    def _say(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(PATIENCE)
            admin.connect(f"{self._folder}/admin.sock")
            admin.sendall(f"{command}\n".encode())
            with admin.makefile() as answer:
                return answer.read()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
        shutil.rmtree(self._folder)
