# docker build --build-arg CUDA=12 -t ladder .          (13 by default; cpu without a GPU)
# docker run --rm --gpus all -v "$PWD/runs:/ladder/runs" ladder
#
# CUDA comes from Python packages: the host has only the driver, and NVIDIA's container toolkit.
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS base
# git names the commit in records; g++ compiles what Triton and the CPU's kernels generate.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home ladder \
    && install --directory --owner=ladder /ladder /ladder/runs
USER ladder
WORKDIR /ladder
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS ladder
ARG CUDA=13
# Packages come before the code, so that a change of the code installs nothing.
COPY --chown=ladder pyproject.toml Makefile ./
COPY --chown=ladder tools/setup.py tools/
RUN make setup CUDA=${CUDA} TORCH=1 && rm -rf ~/.cache
COPY --chown=ladder . .
ENV PATH=/ladder/.venv/bin:$PATH
CMD ["make", "ladder"]
