"""What every shape is made of: bounded texts, amounts and durations; bodies that refuse what they do not know."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from app.domain.egress import host_and_port
from app.domain.money import NS_PER_SECOND, micros_of_usd
from app.errors import BadRequest

WEEK_S = 7 * 24 * 3600
MAX_WAIT_S = 25.0


class Body(BaseModel):
    """What a caller sends. No number is read from a string, no key is passed over, no NaN gets in."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Answer(BaseModel):
    """What a caller gets: the keys of the contract and no others."""

    model_config = ConfigDict(extra="ignore")


def _storable(text: str) -> str:
    """Databases and guests take neither NUL nor half a surrogate pair."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


def _guest_path(path: str) -> str:
    parts = path.split("/")
    if parts[0] or ".." in parts or "." in parts:
        raise ValueError("must be absolute and without . or .. parts")
    return path


def _target(target: str) -> str:
    try:
        host_and_port(target)
    except BadRequest as refused:
        raise ValueError(refused.message) from None
    return target


def _amount(amount: object) -> object:
    """Money has one parser; what it refuses is refused in its words, before a float is made of it."""
    try:
        micros_of_usd("", amount)
    except BadRequest as refused:
        # Whose amount it is stands before each problem of a body.
        raise ValueError(refused.message.lstrip()) from None
    return amount


Storable = AfterValidator(_storable)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
SnapshotRef = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}(@[1-9][0-9]{0,8})?$")
]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, StringConstraints(max_length=128 * 1024), Storable]
Label = Annotated[str, StringConstraints(min_length=1, max_length=255), Storable]
LabelName = Annotated[str, StringConstraints(pattern=r"^[^=\x00]{1,63}$"), Storable]
GuestPath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    Storable,
    AfterValidator(_guest_path),
]
EgressTarget = Annotated[str, StringConstraints(max_length=300), AfterValidator(_target)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[^=\x00]{1,256}$"), Storable]
EnvValue = Annotated[str, StringConstraints(max_length=32 * 1024), Storable]
Env = Annotated[dict[EnvName, EnvValue], Field(max_length=256)]
Usd = Annotated[float, BeforeValidator(_amount)]
Seconds = Annotated[float, Field(gt=0, le=WEEK_S)]
Wait = Annotated[float, Field(ge=0, le=MAX_WAIT_S)]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def ns_of(seconds: float) -> int:
    """Whole nanoseconds, at least one: a limit above zero stays above zero."""
    return max(1, round(seconds * NS_PER_SECOND))
