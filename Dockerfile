# Zoo with every extra.
#
#   docker build -t zoo .                               on CPUs
#   docker build -t zoo --build-arg ACCELERATOR=cu130 . with CUDA 13.0; run it with --gpus all
#   docker run --rm -v "$PWD":/work zoo train algo=ppo2 env=CartPole-v1
#
# ACCELERATOR is the name of one of PyTorch's own wheel folders: cpu, cu126, cu130, …
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm

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
ARG ACCELERATOR=cpu
RUN pip install "$(grep '^torch==' constraints.txt)" --index-url "https://download.pytorch.org/whl/${ACCELERATOR}"

COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY zoo ./zoo
COPY conf ./conf
COPY hyperparams ./hyperparams
COPY trained_agents ./trained_agents
RUN pip install --constraint constraints.txt ".[all]"

# Runs are written below the working folder: mount one of your own here.
WORKDIR /work
ENTRYPOINT ["zoo"]
CMD ["--help"]
