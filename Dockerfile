# An image that serves a run folder, which is mounted at /srv/run:
#
#     docker build --tag relcrf .
#     docker run --publish 127.0.0.1:8000:8000 --volume "$PWD/runs/web:/srv/run:ro" relcrf

FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
RUN grep -oE '^[A-Za-z0-9_.-]+==[^\\]+' requirements.lock > /constraints.txt \
    && python -m venv /opt/relcrf \
    && /opt/relcrf/bin/pip install --no-cache-dir --no-compile --constraint /constraints.txt '.[serve]' \
    && /opt/relcrf/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim
COPY --from=build /opt/relcrf /opt/relcrf
RUN useradd --create-home --uid 1000 relcrf
USER relcrf
# The kernels, compiled for all processors of the architecture, are part of the image, so that no request waits for them.
ENV PATH=/opt/relcrf/bin:$PATH NUMBA_CPU_NAME=generic PYTHONUNBUFFERED=1
RUN relcrf warmup
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["relcrf", "serve", "/srv/run", "--host", "0.0.0.0", "--port", "8000"]
