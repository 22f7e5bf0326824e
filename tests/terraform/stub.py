"""A provider, served to Terraform: a schema, and answers to what it is asked. Validation and mocks need none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

Answer = Callable[[bytes], bytes]
SERVICE = "/tfplugin6.Provider/"
# What Terraform asks of a provider besides its schema, even where all is mocked. An empty answer is no objection.
HARMLESS = (
    "ValidateProviderConfig",
    "ConfigureProvider",
    "ValidateResourceConfig",
    "ValidateDataResourceConfig",
    "ValidateEphemeralResourceConfig",
    "StopProvider",
)


@contextmanager
def serving(schema: bytes, socket: Path, answers: Mapping[str, Answer]) -> Iterator[str]:
    """Serves at `socket` while the context lasts; gives the value of TF_REATTACH_PROVIDERS that leads Terraform there.

    So a single process serves every run of Terraform, and none of them has to find and start a plugin. `answers` are
    to calls by name; any call that is neither there nor harmless is answered with UNIMPLEMENTED, which Terraform tells.
    """
    known: dict[str, Answer] = {
        "GetProviderSchema": lambda _: schema,
        **{name: lambda _: b"" for name in HARMLESS},
        **answers,
    }
    server = grpc.server(
        ThreadPoolExecutor(8),
        handlers=[_Calls(known)],
        options=[("grpc.max_send_message_length", -1)],
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield json.dumps({"hashicorp/aws": _reattach(socket)})
    finally:
        server.stop(grace=None).wait()


def _reattach(socket: Path) -> dict[str, object]:
    address = {"Network": "unix", "String": str(socket)}
    return {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": address,
    }


class _Calls(grpc.GenericRpcHandler):
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        answer = self._answers.get(handler_call_details.method.removeprefix(SERVICE))
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, _: answer(request))
