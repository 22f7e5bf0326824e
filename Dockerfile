# One image for every part of the server; docker-compose.yml says which command each runs.
FROM debian:12-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates make procps python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /srv/promigence
COPY . .
# As on any machine: QEMU, the environment, the guest, the base images.
RUN make setup

ENV PATH=/srv/promigence/.venv/bin:$PATH \
    PROMIGENCE_PRODUCTS=/srv/promigence/.promigence
ENTRYPOINT ["promigence-server"]
