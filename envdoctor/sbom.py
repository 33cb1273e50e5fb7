"""The bill of materials of a built environment (CycloneDX), made from its receipt."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from envdoctor.pylock import Wheel
    from envdoctor.receipt import Receipt

# Source: CycloneDX 1.6 JSON reference, and the purl type definition of PyPI, which knows file names
# as the qualifier `file_name`.
_SPEC = "1.6"


def cyclonedx(receipt: Receipt) -> dict[str, Any]:
    """Return a CycloneDX document; equal receipts give equal documents."""
    content = receipt.tree.environment if receipt.tree else receipt.id
    name = f"{receipt.profile_sha256}/{receipt.generation}/{content}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, name)}",
        "version": 1,
        "metadata": {
            "timestamp": receipt.finished,
            "tools": {
                "components": [
                    _program("envdoctor", receipt.envdoctor_version),
                    *_installer(receipt),
                ]
            },
            "component": {
                "type": "application",
                "bom-ref": "environment",
                "name": str(receipt.profile.get("name", "")),
                "version": receipt.generation,
                "properties": _properties(receipt),
            },
        },
        "components": [
            {
                "type": "platform",
                "bom-ref": "python",
                "name": receipt.python.implementation,
                "version": receipt.python.version,
            },
            *(_component(wheel) for wheel in receipt.packages),
        ],
    }


def _installer(receipt: Receipt) -> list[dict[str, Any]]:
    if receipt.uv is None:
        return []
    return [{**_program("uv", receipt.uv.version), "hashes": [_hash(receipt.uv.sha256)]}]


def _program(name: str, version: str) -> dict[str, Any]:
    return {"type": "application", "name": name, "version": version}


def _component(wheel: Wheel) -> dict[str, Any]:
    version, file = quote(wheel.version, safe=""), quote(wheel.file, safe="")
    # Of an adopted environment the files are not known, only what came out of them.
    purl = f"pkg:pypi/{wheel.name}@{version}{f'?file_name={file}' if file else ''}"
    size = [] if wheel.size is None else [_property("size", str(wheel.size))]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": wheel.name,
        "version": wheel.version,
        "purl": purl,
        **({"hashes": [_hash(wheel.sha256)]} if wheel.sha256 else {}),
        "properties": [
            *([_property("file", wheel.file)] if wheel.file else []),
            _property("source", wheel.source),
            *size,
        ],
    }


def _properties(receipt: Receipt) -> list[dict[str, str]]:
    found = [
        _property("id", receipt.id),
        _property("profile-sha256", receipt.profile_sha256),
        _property("machine", receipt.python.machine),
    ]
    if receipt.tree:
        found += [
            _property("tree-packages", receipt.tree.packages),
            _property("tree-environment", receipt.tree.environment),
        ]
    return found


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}


def _property(name: str, value: str) -> dict[str, str]:
    return {"name": f"envdoctor:{name}", "value": value}
