# Run it with the uid of the agent whose sessions it keeps: the kernel grants
# leases to a file's owner only. deploy/compose.yaml shows how.
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE requirements.txt ./
COPY src src
# The pins are those of the tests; their hashes speak of files pip checks anyway.
RUN sed -n 's/^\([a-z0-9_.-]*==[^ ]*\).*/\1/p' requirements.txt > constraints.txt \
    && python -m venv /opt/brainsurgeon \
    && /opt/brainsurgeon/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.13-slim
COPY --from=build /opt/brainsurgeon /opt/brainsurgeon
ENV PATH=/opt/brainsurgeon/bin:$PATH
ARG UID=1000
USER ${UID}
STOPSIGNAL SIGTERM
ENTRYPOINT ["brainsurgeon"]
CMD ["run"]
