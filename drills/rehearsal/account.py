"""The zone's EC2 API: moto answers it, storage does what the calls mean, and what AWS would refuse is refused.

What moto lets through and AWS does not was tried with moto 5.2: a volume attached twice, at a device that is taken, or
to an instance of another zone; one smaller than its snapshot; a client token that means nothing; a volume that is
detached while it is mounted.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4
from xml.sax.saxutils import escape

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import EC2Backend, ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Response

from drills.rehearsal.storage import Storage, StorageBusy

Asked = dict[str, str]
_SCOPE = re.compile(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/ec2/aws4_request")
_ID = re.compile(rb"<(?:volumeId|snapshotId)>((?:vol|snap)-[0-9a-f]+)</")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the next calls of one action: late by so long, and answered with an error.

    `done`: it is done all the same, and the caller hears only the error.
    """

    action: str
    times: int = 1
    delay_s: float = 0.0
    code: str | None = None
    status: int = 503
    done: bool = False


class Refused(Exception):
    """An answer as AWS gives it to a call that cannot be."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


class Account:
    """A WSGI application: EC2 of one region, with every other service that moto knows beside it.

    `devices` is the folder in which an instance finds its devices.
    """

    def __init__(self, storage: Storage, devices: Callable[[str], Path], region: str) -> None:
        self._storage = storage
        self._devices = devices
        self._region = region
        self._moto = DomainDispatcherApplication(create_backend_app)
        # moto's models and the storage are changed together, or what one says is not what the other has.
        self._lock = Lock()
        self._faults: list[Fault] = []
        self._tokens: dict[str, tuple[Asked, str, Response]] = {}

    def trouble(self, fault: Fault) -> None:
        """From now on, until it has happened as often as it says."""
        with self._lock:
            self._faults.append(fault)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        if scope is None:
            return self._moto(environ, start_response)  # type: ignore[no-any-return]
        try:
            answer = self._ec2(environ, scope["region"])
        except Refused as refused:
            answer = _error(refused)
        return answer(environ, start_response)

    def _ec2(self, environ: dict[str, Any], region: str) -> Response:
        asked = _asked(environ)
        action = asked.get("Action", "")
        fault = self._fault(action)
        time.sleep(fault.delay_s)
        if fault.code is not None and not fault.done:
            raise Refused(fault.code, f"The rehearsal refuses {action}.", fault.status)
        with self._lock:
            act = self._acts().get(action, self._passed) if region == self._region else self._passed
            answer = act(environ, asked)
        if fault.code is not None:
            raise Refused(fault.code, f"The rehearsal lost the answer to {action}.", fault.status)
        return answer

    def _fault(self, action: str) -> Fault:
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.action == action:
                    rest = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                    self._faults[index : index + 1] = rest
                    return fault
        return Fault(action)

    def _acts(self) -> dict[str, Callable[[dict[str, Any], Asked], Response]]:
        return {
            "CreateVolume": self._create_volume,
            "CreateSnapshot": self._create_snapshot,
            "AttachVolume": self._attach,
            "DetachVolume": self._detach,
            "DeleteVolume": self._delete_volume,
            "DeleteSnapshot": self._delete_snapshot,
            "ModifyInstanceAttribute": self._modify,
            "TerminateInstances": self._terminate,
        }

    def _create_volume(self, environ: dict[str, Any], asked: Asked) -> Response:
        plain = {name: value for name, value in asked.items() if name != "ClientToken"}
        token = asked.get("ClientToken")
        before = self._tokens.get(token) if token is not None else None
        if before is not None and before[1] in self._storage.volumes():
            if before[0] != plain:
                raise Refused(
                    "IdempotentParameterMismatch", "Arguments differ from the first call's."
                )
            return before[2]
        self._check_volume(asked)
        answer = self._passed(environ, asked)
        volume_id = _made(answer)
        if volume_id is not None:
            size_gib = int(self._backend.get_volume(volume_id).size)
            self._storage.create(volume_id, size_gib, asked.get("SnapshotId"))
            if token is not None:
                self._tokens[token] = (plain, volume_id, answer)
        return answer

    def _check_volume(self, asked: Asked) -> None:
        zone, snapshot_id = asked.get("AvailabilityZone", ""), asked.get("SnapshotId")
        if zone not in {known.name for known in self._backend.describe_availability_zones()}:
            raise Refused("InvalidZone.NotFound", f"The zone '{zone}' does not exist.")
        snapshot = self._backend.snapshots.get(snapshot_id) if snapshot_id else None
        if snapshot is None or "Size" not in asked:
            return
        least = int(snapshot.volume.size)
        if int(asked["Size"]) < least:
            raise Refused(
                "InvalidParameterValue",
                f"Volume of {asked['Size']}GiB is smaller than snapshot '{snapshot_id}', expect size >= {least}GiB",
            )

    def _create_snapshot(self, environ: dict[str, Any], asked: Asked) -> Response:
        answer = self._passed(environ, asked)
        snapshot_id = _made(answer, b"snap-")
        if snapshot_id is not None:
            self._storage.snapshot(asked["VolumeId"], snapshot_id)
        return answer

    def _attach(self, environ: dict[str, Any], asked: Asked) -> Response:
        volume = self._backend.volumes.get(asked.get("VolumeId", ""))
        if volume is not None:
            self._check_attachment(volume, asked.get("InstanceId", ""), asked.get("Device", ""))
        answer = self._passed(environ, asked)
        if answer.status_code == 200:
            self._storage.attach(asked["VolumeId"], self._devices(asked["InstanceId"]))
        return answer

    def _check_attachment(self, volume: Any, instance_id: str, device: str) -> None:
        instance = self._backend.get_instance(instance_id)
        if volume.attachment is not None:
            raise Refused("VolumeInUse", f"{volume.id} is already attached to an instance")
        if instance.state not in ("running", "stopped"):
            raise Refused("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
        if volume.zone.name != instance.placement.availability_zone:
            raise Refused(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume.id}' is not in the same availability zone as instance '{instance_id}'",
            )
        if device in instance.block_device_mapping:
            raise Refused(
                "InvalidParameterValue",
                f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
            )

    def _detach(self, environ: dict[str, Any], asked: Asked) -> Response:
        volume = self._backend.volumes.get(asked.get("VolumeId", ""))
        if volume is None:
            return self._passed(environ, asked)
        held = volume.attachment
        if held is None:
            raise Refused("IncorrectState", f"Volume '{volume.id}' is in the 'available' state.")
        # AWS knows by itself where a volume is; moto does not.
        told = {"InstanceId": held.instance.id, "Device": held.device} | asked
        try:
            if told["InstanceId"] == held.instance.id:
                self._storage.detach(volume.id, self._devices(held.instance.id))
        except StorageBusy:
            return _busy(volume.id, held.instance.id, held.device)
        return self._passed(environ, told)

    def _delete_volume(self, environ: dict[str, Any], asked: Asked) -> Response:
        answer = self._passed(environ, asked)
        if answer.status_code == 200:
            self._storage.delete(asked["VolumeId"])
        return answer

    def _delete_snapshot(self, environ: dict[str, Any], asked: Asked) -> Response:
        answer = self._passed(environ, asked)
        if answer.status_code == 200:
            self._storage.delete_snapshot(asked["SnapshotId"])
        return answer

    def _modify(self, environ: dict[str, Any], asked: Asked) -> Response:
        """moto notes at the instance alone which volumes end with it; AWS shows it at the volume too."""
        answer = self._passed(environ, asked)
        if answer.status_code == 200:
            for mapped in self._backend.get_instance(
                asked["InstanceId"]
            ).block_device_mapping.values():
                held = self._backend.volumes[mapped.volume_id].attachment
                if held is not None:
                    held.delete_on_termination = mapped.delete_on_termination  # type: ignore[attr-defined]
        return answer

    def _terminate(self, environ: dict[str, Any], asked: Asked) -> Response:
        """An instance that is gone has mounted nothing any more; its volumes are free, or deleted with it."""
        ending = {value for name, value in asked.items() if name.startswith("InstanceId.")}
        for volume_id in self._storage.volumes():
            held = self._backend.volumes[volume_id].attachment
            if held is not None and held.instance.id in ending:
                self._let_go(volume_id, held.instance, held.device)
        return self._passed(environ, asked)

    def _let_go(self, volume_id: str, instance: Any, device: str) -> None:
        goes_along = instance.block_device_mapping[device].delete_on_termination
        self._storage.pull(volume_id, self._devices(instance.id))
        self._backend.detach_volume(volume_id, instance.id, device)
        if goes_along:
            self._backend.delete_volume(volume_id)
            self._storage.delete(volume_id)

    def _passed(self, environ: dict[str, Any], asked: Asked) -> Response:
        body = urlencode(asked).encode()
        told = environ | {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        chunks, status, headers = run_wsgi_app(self._moto, told, buffered=True)
        return Response(b"".join(chunks), status, headers)

    @property
    def _backend(self) -> EC2Backend:
        backend: EC2Backend = ec2_backends[DEFAULT_ACCOUNT_ID][self._region]
        return backend


def _asked(environ: dict[str, Any]) -> Asked:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    return dict(parse_qsl(environ["wsgi.input"].read(length).decode(), keep_blank_values=True))


def _made(answer: Response, kind: bytes = b"vol-") -> str | None:
    """The id of what was made; None where nothing was."""
    if answer.status_code != 200:
        return None
    found = (each for each in _ID.findall(answer.get_data()) if each.startswith(kind))
    return next(found).decode()  # type: ignore[no-any-return]


def _error(refused: Refused) -> Response:
    return _xml(
        f"<Response><Errors><Error><Code>{escape(refused.code)}</Code>"
        f"<Message>{escape(refused.message)}</Message></Error></Errors>"
        f"<RequestID>{uuid4()}</RequestID></Response>",
        refused.status,
    )


def _busy(volume_id: str, instance_id: str, device: str) -> Response:
    """A mounted volume is not let go of: it stays where it is, and is busy."""
    return _xml(
        '<DetachVolumeResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>{uuid4()}</requestId><volumeId>{escape(volume_id)}</volumeId>"
        f"<instanceId>{escape(instance_id)}</instanceId><device>{escape(device)}</device>"
        "<status>busy</status></DetachVolumeResponse>",
        200,
    )


def _xml(text: str, status: int) -> Response:
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}', status, mimetype="text/xml")
