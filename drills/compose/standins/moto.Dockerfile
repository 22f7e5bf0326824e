# moto's server from its package.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3-venv && rm -rf /var/lib/apt/lists/*
ARG CA_BUNDLE=
ARG MOTO
RUN python3 -m venv /opt/moto \
    && ca=/etc/ssl/certs/ca-certificates.crt \
    && if [ -n "$CA_BUNDLE" ]; then ca=/tmp/ca.pem; printf '%s\n' "$CA_BUNDLE" >"$ca"; fi \
    && /opt/moto/bin/python -m pip install --no-cache-dir --cert "$ca" "moto[ec2,s3,server]==$MOTO" && rm -f /tmp/ca.pem
ENV PATH=/opt/moto/bin:$PATH
ENTRYPOINT ["moto_server"]
