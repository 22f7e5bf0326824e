"""Image and set-up -> a warm template -> a frozen candidate, and the forks that will verify it.

A build is an internal run: its template is the first fork, and its verification forks join when the template is frozen.
Nothing here waits for a fork; the last one to end rings `verify`.
"""

from __future__ import annotations

from dataclasses import replace

from app.domain import egress
from app.domain.account import Project
from app.domain.build_price import VERIFY_RETRIES, BuildPrice, price_build
from app.domain.machine import Accelerator, Shape
from app.domain.money import affordable_ns
from app.domain.quote import Concurrency, Quote
from app.domain.rates import Rate
from app.domain.run import Fork, Group, Role, Run, RunKind, RunSpec, RunState
from app.domain.snapshot import Build, BuildState, Definition, Origin, Snapshot
from app.errors import BadRequest, Conflict
from app.flow._once import Answer, ReceiptOf, Token, once
from app.ids import new_id
from app.ports import Ports
from app.ports.bundle import Limits


def start(ports: Ports, project_id: str, definition: Definition, token: Token | None) -> Answer:
    """Accept a build: `{"build_id", "name", "state"}`.

    Raises BadRequest(unknown_image, missing_file, shape_not_priced, bad_definition, cap_too_small),
    Forbidden(egress_not_allowed), Conflict(project_budget_exhausted, idempotency_mismatch).
    """

    def effect(receipt: ReceiptOf) -> Answer:
        _check_image(ports, definition)
        _check_files(ports, project_id, definition)
        return _begin(ports, project_id, definition, receipt)

    return once(ports, project_id, token, effect)


def rebuild(
    ports: Ports, project_id: str, ref: str, cap_micros: int | None, token: Token | None
) -> Answer:
    """Accept a build of the definition that a stored version was built of: as `start`, and `rebuilds` its ref.

    What comes of it is a new version of the same name, which the name means once it is verified; so a rebuild of an
    older version brings its definition back. `cap_micros` stands in for the definition's own cap, which a later rate
    card may have made too small.

    Raises NotFound(unknown_snapshot), Conflict(image_gone, files_gone), and what `start` raises of a definition.
    """

    def effect(receipt: ReceiptOf) -> Answer:
        snapshot = ports.snapshots.get(project_id, ref)
        cap = snapshot.definition.cap_micros if cap_micros is None else cap_micros
        definition = replace(snapshot.definition, cap_micros=cap)
        _still_there(ports, snapshot)
        return _begin(ports, project_id, definition, receipt, Origin.of(snapshot))

    return once(ports, project_id, token, effect)


def is_here(ports: Ports, project_id: str, sha256: str) -> bool:
    """Whether a project has sent these bytes and they are kept: who only knows their hash has nothing by it."""
    return bool(ports.uploads.known(project_id, (sha256,))) and ports.blobs.has(sha256)


def _begin(
    ports: Ports,
    project_id: str,
    definition: Definition,
    receipt: ReceiptOf,
    origin: Origin | None = None,
) -> Answer:
    _check_shape(definition.shape, ports.limits)
    egress.check((*definition.build_egress, *definition.egress), ports.limits.egress)
    rate = ports.rates.rate(definition.shape)
    project = ports.projects.get(project_id)
    priced = price_build(definition, rate, project)
    build_id = new_id("build")
    run = _run(ports, project, definition, priced, rate)
    template = _template(run, build_id, definition, priced)
    build = Build(
        build_id=build_id,
        project_id=project_id,
        run_id=run.run_id,
        definition=definition,
        state=BuildState.QUEUED,
        created_ns=run.created_ns,
        template_fork_id=template.fork_id,
        origin=origin,
    )
    answer: Answer = {"build_id": build_id, "name": definition.name, "state": "queued"}
    ports.builds.start(build, run, template, receipt(answer))
    ports.bells.place()
    return answer


def _check_image(ports: Ports, definition: Definition) -> None:
    if definition.image not in ports.images.names():
        raise BadRequest(
            "unknown_image",
            f"image {definition.image!r} is not known here; there are: {_images(ports)}",
        )


def _check_files(ports: Ports, project_id: str, definition: Definition) -> None:
    for file in definition.files:
        if not is_here(ports, project_id, file.sha256):
            raise BadRequest(
                "missing_file",
                f"the files for {file.guest_path} ({file.sha256}) were never uploaded",
                sha256=file.sha256,
            )


def _still_there(ports: Ports, snapshot: Snapshot) -> None:
    """What a version was built of; nothing that its caller said is wrong if it is not."""
    definition = snapshot.definition
    if definition.image not in ports.images.names():
        raise Conflict(
            "image_gone",
            f"{snapshot.ref} was built from image {definition.image!r}, which is not here any more (there are: "
            f"{_images(ports)}); set that image up again, or build {snapshot.name} from a changed definition",
            image=definition.image,
        )
    gone = [file for file in definition.files if not ports.blobs.has(file.sha256)]
    if gone:
        raise Conflict(
            "files_gone",
            f"files that {snapshot.ref} was built from are not kept any more: those for "
            f"{', '.join(file.guest_path for file in gone)}; build {snapshot.name} from its definition, which "
            "uploads them again",
            files=[{"guest_path": file.guest_path, "sha256": file.sha256} for file in gone],
        )


def _images(ports: Ports) -> str:
    return ", ".join(ports.images.names()) or "none"


def _check_shape(shape: Shape, limits: Limits) -> None:
    most = (limits.max_shape_vcpus, limits.max_shape_memory_mib, limits.max_shape_disk_gib)
    if shape.vcpus > most[0] or shape.memory_mib > most[1] or shape.disk_gib > most[2]:
        raise BadRequest(
            "bad_definition",
            f"a shape has at most {most[0]} vcpus, {most[1]} memory_mib and {most[2]} disk_gib",
        )


def _run(
    ports: Ports, project: Project, definition: Definition, priced: BuildPrice, rate: Rate
) -> Run:
    spec = RunSpec(
        groups=(Group(definition.name, definition.repeat),),
        cap_micros=definition.cap_micros,
        exec=definition.test,
        verify_each=False,
        environment_retries=VERIFY_RETRIES,
    )
    now = ports.clock.wall_ns()
    quote = Quote(
        quote_id=new_id("quote"),
        cap_micros=definition.cap_micros,
        worst_micros=priced.worst_micros,
        rate=rate,
        funded_ns=affordable_ns(priced.fork_grant_micros, rate.micros_per_hour),
        concurrency=Concurrency(1 + definition.repeat, 0, 0),
        accelerator=Accelerator.TCG,
        expires_ns=now,
        project=project,
    )
    return Run(
        run_id=new_id("run"),
        project_id=project.project_id,
        kind=RunKind.BUILD,
        state=RunState.ACTIVE,
        spec=spec,
        quote=quote,
        budget_micros=priced.budget_micros,
        pool_micros=priced.budget_micros - priced.template_grant_micros,
        granted_micros=priced.template_grant_micros,
        charged_micros=0,
        created_ns=now,
    )


def _template(run: Run, build_id: str, definition: Definition, priced: BuildPrice) -> Fork:
    return Fork(
        fork_id=new_id("fork"),
        run_id=run.run_id,
        project_id=run.project_id,
        index=-1,
        role=Role.TEMPLATE,
        snapshot=definition.name,
        bundle_id=build_id,
        restore_key=None,
        shape=definition.shape,
        grant_micros=priced.template_grant_micros,
        worst_micros=priced.template_worst_micros,
        worst_attempt_ns=definition.build_ns,
        smallest_micros=0,
        queued_ns=run.created_ns,
    )
