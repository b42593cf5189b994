# Run it with the uid of the agent whose sessions it keeps: the kernel grants
# leases to a file's owner only. deploy/compose.yaml shows how.
#
# The base is a tag; to pin it, build with what this prints for it:
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg PYTHON=python:3.13-slim@sha256:... .
# --build-arg MCP= leaves the server for agents out, which the daemon does not need.
ARG PYTHON=python:3.13-slim
FROM ${PYTHON} AS build
WORKDIR /build
COPY deploy/requirements.txt deploy/requirements-mcp.txt deploy/
# Versions and hashes are those of the tests; nothing else is installed, for the build neither.
ARG MCP=yes
RUN python3 -m venv /opt/brainsurgeon \
    && /opt/brainsurgeon/bin/pip install --no-cache-dir --require-hashes \
       -r deploy/requirements.txt ${MCP:+-r deploy/requirements-mcp.txt}
COPY pyproject.toml README.md LICENSE config.toml.example ./
COPY deploy deploy
COPY systemd systemd
COPY src src
RUN /opt/brainsurgeon/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${PYTHON}
COPY --from=build /opt/brainsurgeon /opt/brainsurgeon
ENV PATH=/opt/brainsurgeon/bin:$PATH
ARG UID=1000
USER ${UID}
STOPSIGNAL SIGTERM
# It looks at every session: not often.
HEALTHCHECK --interval=10m --timeout=2m --start-period=1m CMD ["brainsurgeon", "status", "--check"]
ENTRYPOINT ["brainsurgeon"]
CMD ["run"]
