# Two stages: build from source on Debian 12, then an image that holds the daemon, its libraries and the shipped model.
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      gcc libc6-dev cmake ninja-build pkg-config \
      libhiredis-dev libevent-dev libssl-dev libcjson-dev libxxhash-dev zlib1g-dev libzstd-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json LICENSE README.md SECURITY.md ./
COPY cmake cmake
COPY kernels kernels
COPY src src
COPY lua lua
COPY config config
RUN cmake --preset release -DSLUICE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr/local \
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
