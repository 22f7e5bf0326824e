# Two images from one file: `control` (API, billing worker, Flower: a small one, no root) and `host` (the worker with QEMU and all
# that machines are made of). Which command each container runs is said in docker-compose.yml; see docs/compose.md.
#
#   docker build --target control .        docker build --target host .
#
# BASE is pinned to a point release; give it with its digest (debian:12.12-slim@sha256:...) for builds that repeat to the byte.
# CA_BUNDLE is a certificate in PEM, for builds behind a proxy that opens TLS: --build-arg CA_BUNDLE="$(cat ca.pem)". It is
# read while packages are fetched and stays in no image.
ARG BASE=debian:12.12-slim

FROM ${BASE} AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log

# What machines are made of: the keeper, the guest's kernel and tools, the base images. As `make setup` builds them anywhere,
# and before the server, of which they need nothing: a change there leaves them as they are.
FROM base AS products
WORKDIR /srv/promigence
COPY infra/setup infra/setup
RUN infra/setup/run system && rm -rf /var/lib/apt/lists/*
COPY guest guest
COPY infra/image infra/image
COPY infra/__init__.py infra/__init__.py
COPY infra/qemu/keeper.c infra/qemu/keeper.c
RUN apt-get update && infra/setup/run unpack keeper guest images && rm -rf /var/lib/apt/lists/* \
    && mkdir /products && mv .promigence/bin .promigence/guest .promigence/images /products/

# The virtual environment: every package by its hash, then this checkout without asking for any.
FROM base AS venv
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/promigence
COPY requirements.txt ./
ARG CA_BUNDLE=
RUN python3 -m venv .venv \
    && ca=/etc/ssl/certs/ca-certificates.crt \
    && if [ -n "$CA_BUNDLE" ]; then ca=/tmp/ca.pem; printf '%s\n' "$CA_BUNDLE" >"$ca"; fi \
    && .venv/bin/python -m pip --disable-pip-version-check --no-input --cert "$ca" \
        install --no-cache-dir --no-compile --require-hashes -r requirements.txt \
    && rm -f /tmp/ca.pem
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY app app
COPY infra infra
COPY workers workers
RUN .venv/bin/python -m pip --disable-pip-version-check --no-input \
        install --no-cache-dir --no-compile --no-deps --no-build-isolation --no-index . \
    && .venv/bin/python -m pip --no-input uninstall --yes pip setuptools hatchling editables \
    && .venv/bin/python -m compileall -q .venv

# What runs machines, and works on their disks.
FROM base AS hypervisor
COPY infra/setup /srv/setup/infra/setup
RUN /srv/setup/infra/setup/system.sh qemu-system-x86 qemu-utils e2fsprogs \
    && rm -rf /srv/setup /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
COPY --from=products /products /srv/promigence/.promigence

# A user of no rights, and folders that volumes take their owner and mode from. What files are kept in is shared between
# the API's user and the host's root, by its group.
FROM base AS control
RUN groupadd --gid 10001 promigence \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/promigence --no-create-home --shell /usr/sbin/nologin promigence \
    && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/promigence \
    && install --directory --owner 10001 --group 10001 --mode 0700 /access \
    && install --directory --owner root --group 10001 --mode 2770 /var/lib/promigence/blobs
COPY --from=venv /srv/promigence/.venv /srv/promigence/.venv
ENV PATH=/srv/promigence/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PROMIGENCE_DIR=/var/lib/promigence
WORKDIR /var/lib/promigence
USER 10001:10001
ENTRYPOINT ["promigence-server"]

FROM hypervisor AS host
# A volume takes owner and mode from the first image that it is mounted in: those of what is shared are the same in both.
RUN install --directory --owner root --group root --mode 0700 /var/lib/promigence \
    && install --directory --owner 10001 --group 10001 --mode 0700 /access \
    && install --directory --owner root --group 10001 --mode 2770 /var/lib/promigence/blobs
COPY --from=venv /srv/promigence/.venv /srv/promigence/.venv
ENV PATH=/srv/promigence/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PROMIGENCE_DIR=/var/lib/promigence
WORKDIR /var/lib/promigence
ENTRYPOINT ["promigence-server"]
