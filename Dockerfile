# Run it with the uid of the agent whose sessions it keeps: the kernel grants
# leases to a file's owner only. deploy/compose.yaml shows how.
FROM python:3.13-slim AS build
WORKDIR /build
COPY deploy/requirements.txt deploy/requirements.txt
# Versions and hashes are those of the tests; nothing else is installed, for the build neither.
RUN python -m venv /opt/brainsurgeon \
    && /opt/brainsurgeon/bin/pip install --no-cache-dir --require-hashes -r deploy/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/brainsurgeon/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/brainsurgeon /opt/brainsurgeon
ENV PATH=/opt/brainsurgeon/bin:$PATH
ARG UID=1000
USER ${UID}
STOPSIGNAL SIGTERM
ENTRYPOINT ["brainsurgeon"]
CMD ["run"]
