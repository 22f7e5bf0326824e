# Debian's Redis under the user and folder of the official image, whose name it is given where that cannot be pulled.
ARG BASE
FROM ${BASE}
RUN groupadd --system --gid 999 redis && useradd --system --gid redis --uid 999 redis \
    && apt-get update && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/* && install --directory --owner 999 --group 999 /data
WORKDIR /data
CMD ["redis-server"]
