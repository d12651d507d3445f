"""Writes the SBOM of the gateway as CycloneDX JSON, from the lock file: `python .ci/sbom.py requirements/gateway.txt`.

It has no time and no random number in it, so the same lock gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import tomllib
import uuid
from pathlib import Path

from lock import Package, read_lock

ROOT = Path(__file__).parent.parent
BUILD_TOOLS = frozenset({"uv-build"})
"""Needed to build the gateway, and not part of it."""


def describe_package(package: Package) -> dict[str, object]:
    purl = f"pkg:pypi/{package.name.lower()}@{package.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "scope": "excluded" if package.name in BUILD_TOOLS else "optional" if package.marker else "required",
        "externalReferences": [
            {
                "type": "distribution",
                "url": purl,
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
            }
        ],
        **({"properties": [{"name": "toolwire:marker", "value": package.marker}]} if package.marker else {}),
    }


def write_sbom(lock: Path) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    purl = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [describe_package(package) for package in read_lock(lock)]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, purl + json.dumps(components))
    sbom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": project["name"],
                "version": project["version"],
                "purl": purl,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    return json.dumps(sbom, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(write_sbom(Path(sys.argv[1])))
