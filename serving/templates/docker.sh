#!/bin/sh
# The newest version, by TensorFlow Serving, at http://127.0.0.1:${rest_port} and grpc://127.0.0.1:${grpc_port}
docker run --rm -p 127.0.0.1:${grpc_port}:8500 -p 127.0.0.1:${rest_port}:8501 --mount ${mount} -e MODEL_NAME=${name} ${image}
