"""Queries a server by gRPC: `jobi-tf serve exports/world` has to be running."""

import grpc
from tensorflow import make_ndarray, make_tensor_proto
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "world"
request.model_spec.signature_name = "predict_tails"
request.inputs["head"].CopyFrom(make_tensor_proto(["Switzerland"]))
request.inputs["relation"].CopyFrom(make_tensor_proto(["official_language"]))
request.inputs["k"].CopyFrom(make_tensor_proto([4]))
with grpc.insecure_channel("127.0.0.1:8500") as channel:
    answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=10)
print(make_ndarray(answer.outputs["tail"]))
