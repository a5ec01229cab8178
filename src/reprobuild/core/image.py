"""OCI image documents: config, manifest, index; and what can be read out of them.

Formats: OCI image specification 1.0 (config, manifest, image layout). Every document is emitted in
the canonical encoding, so equal content has equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

from reprobuild.core.digest import Sha256
from reprobuild.core.encoding import Value, encode
from reprobuild.core.wording import json_problem
from reprobuild.errors import ReprobuildError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = LAYER + "+gzip"
LAYER_ZSTD = LAYER + "+zstd"

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

MEDIA_TYPES: Mapping[str, str] = {
    LAYER: LAYER,
    LAYER_GZIP: LAYER_GZIP,
    LAYER_ZSTD: LAYER_ZSTD,
    DOCKER_LAYER: LAYER_GZIP,
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
}
"""Layer media types that are accepted, and the OCI name of the same format."""

REF_NAME = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"
COMPONENT = "reprobuild.component"
"""The layer annotation that names the component a layer holds."""

OCI_LAYOUT = encode({"imageLayoutVersion": "1.0.0"})


def sha256_of(data: bytes) -> Sha256:
    """The OCI digest of `data`."""
    return Sha256(sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: identity of its content (`diff_id`) and of its blob (`digest`, `size` in bytes).

    `component` is empty for a base image's layers.
    """

    diff_id: Sha256
    digest: Sha256
    size: int
    media_type: str
    component: str = ""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image layout says about its one image."""

    reference: str
    config_digest: Sha256
    manifest_digest: Sha256
    layers: tuple[Layer, ...]
    labels: Mapping[str, str]
    architecture: str = "amd64"
    manifest_known: bool = True
    """False for what came out of a daemon, which keeps no manifest of ours."""

    def document(self) -> dict[str, Value]:
        """The keys that the command line promises."""
        return {
            "reference": self.reference,
            "config_digest": str(self.config_digest),
            "manifest_digest": str(self.manifest_digest) if self.manifest_known else "",
            "layers": [
                {
                    "component": layer.component,
                    "diff_id": str(layer.diff_id),
                    "digest": str(layer.digest),
                    "size": layer.size,
                }
                for layer in self.layers
            ],
            "labels": dict(self.labels),
        }


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The part of a config that says how a container is started, in the image's own terms."""

    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] | None = None
    cmd: Sequence[str] | None = None
    workdir: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[str] = ()
    volumes: Sequence[str] = ()
    stop_signal: str = ""

    def over(self, base: Mapping[str, Value]) -> dict[str, Value]:
        """The config object, on top of a base image's: variables and labels of both, the rest
        replaced where it is said here. As in a Dockerfile, a new entrypoint drops the old
        command."""
        out: dict[str, Value] = {}
        env = _environment(base.get("Env"))
        env.update(self.env)
        if env:
            out["Env"] = [f"{name}={value}" for name, value in env.items()]
        labels = {**texts(base.get("Labels")), **self.labels}
        if labels:
            out["Labels"] = dict(labels)
        entrypoint = base.get("Entrypoint") if self.entrypoint is None else list(self.entrypoint)
        cmd = self.cmd
        if cmd is not None:
            out["Cmd"] = list(cmd)
        elif self.entrypoint is None and base.get("Cmd"):
            out["Cmd"] = base["Cmd"]
        if entrypoint:
            out["Entrypoint"] = entrypoint
        for key, own in (
            ("WorkingDir", self.workdir),
            ("User", self.user),
            ("StopSignal", self.stop_signal),
        ):
            value = own or base.get(key)
            if value:
                out[key] = value
        for key, names in (("ExposedPorts", self.ports), ("Volumes", self.volumes)):
            inherited = base.get(key)
            merged = {**(inherited if isinstance(inherited, Mapping) else {})}
            merged.update({name: {} for name in names})
            if merged:
                out[key] = {name: {} for name in merged}
        return out


def _environment(value: Value) -> dict[str, str]:
    if not isinstance(value, (list, tuple)):
        return {}
    pairs = (item.partition("=") for item in value if isinstance(item, str))
    return {name: content for name, _, content in pairs}


def texts(value: Value) -> dict[str, str]:
    """The texts of a foreign table; empty for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {k: v for k, v in value.items() if isinstance(v, str)}


def config_document(
    run: RunConfig,
    layers: Sequence[Layer],
    *,
    created: str,
    architecture: str,
    base: Mapping[str, Value] | None = None,
) -> bytes:
    """The image config. `created` is RFC 3339; `base` the config of the image underneath, whose
    history comes first. `layers` are all of them, the base's included."""
    base = base or {}
    inherited = base.get("config")
    history: list[Value] = []
    old = base.get("history")
    base_count = sum(1 for layer in layers if not layer.component)
    if isinstance(old, (list, tuple)) and base_count:
        history += [_history(entry) for entry in old if isinstance(entry, Mapping)]
        stated = sum(1 for h in history if not cast("dict[str, Value]", h).get("empty_layer"))
        if stated != base_count:
            history = []
    if not history:
        history = [{"created_by": "base image"} for _ in range(base_count)]
    for layer in layers:
        if layer.component:
            history.append({"created": created, "created_by": f"reprobuild: {layer.component}"})
    return encode(
        {
            "architecture": architecture,
            "config": run.over(inherited if isinstance(inherited, Mapping) else {}),
            "created": created,
            "history": history,
            "os": "linux",
            "rootfs": {"diff_ids": [str(layer.diff_id) for layer in layers], "type": "layers"},
        }
    )


def _history(entry: Mapping[str, Value]) -> dict[str, Value]:
    kept = ("author", "comment", "created", "created_by", "empty_layer")
    return {k: v for k, v in entry.items() if k in kept and isinstance(v, (str, bool))}


def _descriptor(media_type: str, digest: Sha256, size: int) -> dict[str, Value]:
    return {"digest": str(digest), "mediaType": media_type, "size": size}


def manifest_document(config: bytes, layers: Sequence[Layer]) -> bytes:
    """The image manifest over a config and its layers."""
    described: list[Value] = []
    for layer in layers:
        descriptor = _descriptor(layer.media_type, layer.digest, layer.size)
        if layer.component:
            descriptor["annotations"] = {COMPONENT: layer.component}
        described.append(descriptor)
    return encode(
        {
            "config": _descriptor(CONFIG, sha256_of(config), len(config)),
            "layers": described,
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        }
    )


def index_document(manifest: bytes, *, reference: str, architecture: str) -> bytes:
    """The layout's index of exactly one image, called `reference`."""
    descriptor = _descriptor(MANIFEST, sha256_of(manifest), len(manifest))
    descriptor["platform"] = {"architecture": architecture, "os": "linux"}
    if reference:
        descriptor["annotations"] = {
            REF_NAME: reference,
            CONTAINERD_NAME: qualified(reference),
        }
    return encode({"manifests": [descriptor], "mediaType": INDEX, "schemaVersion": 2})


def qualified(reference: str) -> str:
    """A reference with its registry spelled out, as containerd wants it."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def parse_json(data: bytes, what: str) -> dict[str, Value]:
    """A foreign JSON object; raises E-IMAGE when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReprobuildError("E-IMAGE", f"{what} is no JSON: {json_problem(error)}") from error
    if not isinstance(value, dict):
        raise ReprobuildError("E-IMAGE", f"{what} is no JSON object")
    return value


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference to a blob of a layout."""

    media_type: str
    digest: Sha256
    size: int
    annotations: Mapping[str, str]
    platform: tuple[str, str] = ("", "")

    @classmethod
    def parse(cls, value: Value, what: str) -> Descriptor:
        """Raises E-IMAGE for what is no descriptor with a SHA-256 digest."""
        if not isinstance(value, Mapping):
            raise ReprobuildError("E-IMAGE", f"{what} holds no descriptor")
        media, digest, size = value.get("mediaType", ""), value.get("digest"), value.get("size")
        if not isinstance(media, str) or not isinstance(digest, str) or type(size) is not int:
            raise ReprobuildError("E-IMAGE", f"{what} holds a descriptor that is off")
        if size < 0 or not digest.startswith("sha256:"):
            raise ReprobuildError("E-IMAGE", f"{what} refers to {digest[:80]!r}, {size} bytes")
        platform = value.get("platform")
        pair = texts(platform)
        return cls(
            media,
            Sha256.parse(digest),
            size,
            texts(value.get("annotations")),
            (pair.get("os", ""), pair.get("architecture", "")),
        )


def parse_index(data: bytes) -> list[Descriptor]:
    """The manifests that an index or layout refers to."""
    entries = parse_json(data, "the index").get("manifests")
    if not isinstance(entries, list):
        raise ReprobuildError("E-IMAGE", "the index has no list of manifests")
    return [Descriptor.parse(entry, "the index") for entry in entries]


def parse_manifest(data: bytes) -> tuple[Descriptor, list[Descriptor]]:
    """The config and the layers that a manifest refers to."""
    document = parse_json(data, "the manifest")
    layers = document.get("layers")
    if not isinstance(layers, list):
        raise ReprobuildError("E-IMAGE", "the manifest has no list of layers")
    config = Descriptor.parse(document.get("config"), "the manifest")
    return config, [Descriptor.parse(layer, "the manifest") for layer in layers]


def facts(reference: str, manifest_digest: Sha256, manifest: bytes, config: bytes) -> ImageFacts:
    """What manifest and config say together; raises E-IMAGE when they disagree."""
    descriptor, layers = parse_manifest(manifest)
    if descriptor.digest != sha256_of(config):
        raise ReprobuildError(
            "E-IMAGE", f"the config is not {descriptor.digest}, as the manifest says"
        )
    document = parse_json(config, "the config")
    rootfs = document.get("rootfs")
    ids = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
    if not isinstance(ids, list) or len(ids) != len(layers):
        raise ReprobuildError("E-IMAGE", "config and manifest disagree on the number of layers")
    run = document.get("config")
    return ImageFacts(
        reference,
        descriptor.digest,
        manifest_digest,
        tuple(
            Layer(
                Sha256.parse(str(diff_id)),
                layer.digest,
                layer.size,
                layer.media_type,
                layer.annotations.get(COMPONENT, ""),
            )
            for diff_id, layer in zip(ids, layers, strict=True)
        ),
        texts(run.get("Labels")) if isinstance(run, Mapping) else {},
        str(document.get("architecture", "")),
    )
