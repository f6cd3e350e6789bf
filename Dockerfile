# Two stages: build from source on Debian 12, then an image that holds the daemon, its libraries and the shipped model.
# With --build-arg CUDA=ON it also computes on NVIDIA GPUs (0.6 GB more, driver 580 or later): compiler and cuBLAS are NVIDIA's
# Python wheels, because Debian 12's CUDA is too old. With --build-arg SLUICE_COMMIT=$(git log -1 --format=%ct-%H) the version names
# the commit; the image has no git, so otherwise the version is 0.1.0 for every commit.
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      gcc libc6-dev cmake ninja-build pkg-config \
      libhiredis-dev libevent-dev libssl-dev libcjson-dev libxxhash-dev zlib1g-dev libzstd-dev \
    && rm -rf /var/lib/apt/lists/*
ARG CUDA=OFF
RUN if [ "$CUDA" = ON ]; then apt-get update && apt-get install -y --no-install-recommends g++ python3-pip \
    && pip install --break-system-packages --no-cache-dir --no-deps --target /opt nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 \
      nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3 \
    && cd /opt/nvidia/cu13 && ln -s lib lib64 && ln -s libcudart.so.13 lib/libcudart.so && ln -s "$PWD" /usr/local/cuda \
    && install -D -t /out/usr/local/cuda/lib64 lib/libcublas.so.13 lib/libcublasLt.so.13; fi
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json LICENSE README.md SECURITY.md ./
COPY cmake cmake
COPY kernels kernels
COPY src src
COPY lua lua
COPY config config
ARG SLUICE_COMMIT
RUN cmake --preset release -DSLUICE_CUDA=$CUDA -DSLUICE_COMMIT=$SLUICE_COMMIT -DSLUICE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr/local \
    && cmake --build --preset release \
    && DESTDIR=/out cmake --install build/release --strip

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
      libhiredis0.14 libevent-core-2.1-7 libevent-openssl-2.1-7 libssl3 ca-certificates \
      libcjson1 libxxhash0 zlib1g libzstd1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --uid 10001 sluice
COPY --from=build /out/usr/local /usr/local
USER sluice
ENTRYPOINT ["/usr/local/bin/sluice"]
CMD ["serve", "--model", "/usr/local/share/sluice/models/sluice-mini-en"]
