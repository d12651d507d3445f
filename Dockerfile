# A small image of the gateway that runs without root. Put client keys into /etc/toolwire.toml: see docs/guides/gateway.md.
# A release builds it with the base image pinned by digest: see docs/security.md.
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY requirements/gateway.txt requirements/
COPY src src
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement requirements/gateway.txt \
 && PATH="/venv/bin:$PATH" /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /venv/bin/pip uninstall --yes uv_build pip setuptools

FROM ${PYTHON_IMAGE}
# /var/lib/toolwire is the state folder, with the store. It is a volume, so that the rest can be read-only.
RUN groupadd --system --gid 10001 toolwire \
 && useradd --system --uid 10001 --gid toolwire --home-dir /var/lib/toolwire --no-create-home toolwire \
 && install --directory --owner toolwire --group toolwire --mode 0700 /var/lib/toolwire
COPY --from=build /venv /venv
USER toolwire
ENV PYTHONUNBUFFERED=1 TOOLWIRE_CONFIG=/etc/toolwire.toml XDG_STATE_HOME=/var/lib PATH="/venv/bin:$PATH"
VOLUME /var/lib/toolwire
EXPOSE 8642
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s CMD ["/venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8642/readyz')"]
ENTRYPOINT ["/venv/bin/toolwire", "serve", "--host", "0.0.0.0"]
