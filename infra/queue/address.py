"""Where Redis is, as each of its clients reads it; with TLS its certificate is always checked, and its name.

A URL is `redis+socket:///path`, `redis://user:password@host:port/db` or, with TLS, `rediss://...`; who signed the
certificate is one of the system's authorities, or `?ssl_ca_certs=/a/file.pem`.
"""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from app.errors import BadRequest

# A publisher that finds Redis away gives up after this: the rows are saved, recovery rings again.
CONNECT_TIMEOUT_S = 2
_CHECKED: dict[str, str | bool] = {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
_CA = "ssl_ca_certs"


def redis_url(broker_url: str) -> str:
    """The same Redis as redis-py names it: Celery's `redis+socket:///path` is its `unix:///path`.

    Raises BadRequest(bad_redis_url) where the URL would check less.
    """
    parts = urlsplit(broker_url)
    if parts.scheme == "redis+socket":
        query = parts.query.replace("virtual_host=", "db=")
        return f"unix://{parts.path}" + (f"?{query}" if query else "")
    checked = tls(broker_url)
    if checked is None:
        return broker_url
    options = [*_others(parts), *checked.items()]
    return urlunsplit(parts._replace(query=urlencode(options)))


def tls(broker_url: str) -> dict[str, str | bool] | None:
    """How the certificate is checked, in the words of redis-py and of Celery; None without TLS.

    Raises BadRequest(bad_redis_url) where the URL would check less.
    """
    parts = urlsplit(broker_url)
    if parts.scheme != "rediss":
        return None
    asked = {name: value for name, value in parse_qsl(parts.query) if name.startswith("ssl_")}
    authority = asked.pop(_CA, None)
    if any(str(_CHECKED.get(name)).lower() != value.lower() for name, value in asked.items()):
        raise BadRequest(
            "bad_redis_url",
            f"of TLS a redis_url may say {_CA} and nothing else: the certificate is always checked",
        )
    return _CHECKED if authority is None else {**_CHECKED, _CA: authority}


def without_tls(broker_url: str) -> str:
    """The URL without what `tls` says of it: Celery is told that beside it."""
    parts = urlsplit(broker_url)
    if parts.scheme != "rediss":
        return broker_url
    return urlunsplit(parts._replace(query=urlencode(_others(parts))))


def database_number(broker_url: str) -> int:
    """Which of Redis's databases a URL names: kombu writes it into the names of channels."""
    said = urlsplit(broker_url).path.strip("/")
    return int(said) if said.isdigit() else 0


def _others(parts: SplitResult) -> list[tuple[str, str]]:
    return [(name, value) for name, value in parse_qsl(parts.query) if not name.startswith("ssl_")]
