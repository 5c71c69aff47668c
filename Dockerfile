# Zoo with every extra.
#
#   docker build -t zoo .
#   docker build -t zoo --build-arg TORCH_INDEX=URL .    PyTorch from another index
#   docker build -t zoo --build-arg UID="$(id -u)" .     for a user whose number is not 1000
#   docker run --rm -v "$PWD":/work zoo train algo=ppo2 env=CartPole-v1
#
# Nothing runs as the superuser: what is mounted at /work has to be writable for the user with the number UID. With
# -v zoo-home:/home/zoo the key by which your own runs are known, and compiled updates, outlive a container.
#
# Without TORCH_INDEX this is the PyTorch of the Python package index, which runs on CPUs, and on GPUs where the
# container is started with --gpus all. PyTorch's own index has a smaller one for CPUs alone, and one for each CUDA.
# One release of the base, not whatever is newest; --build-arg BASE=python@sha256:… names one image for good.
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE}

# Compiled updates need a C++ compiler; MuJoCo films through EGL.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libegl1 libgl1 \
    && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1

WORKDIR /opt/zoo
COPY constraints.txt ./
ARG TORCH_INDEX=
RUN pip install "$(grep '^torch==' constraints.txt)" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}

COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY zoo ./zoo
COPY conf ./conf
COPY hyperparams ./hyperparams
COPY trained_agents ./trained_agents
# Editable, so that the whole collection is there: a wheel carries the agents of classic control alone.
RUN pip install --constraint constraints.txt --editable ".[all]" && python -m compileall -q zoo

# Runs are written below the working folder: mount one of your own here.
ARG UID=1000
RUN useradd --uid "$UID" --create-home zoo && install --directory --owner=zoo --mode=0700 /work
USER zoo
WORKDIR /work
ENTRYPOINT ["zoo"]
CMD ["--help"]
