// Answers requests from a SavedModel, by TensorFlow's own loader, the one that TensorFlow Serving uses.
//
//   load_saved_model FOLDER < requests > answers
//
// A request is the name of a signature on a line, then a line an input (its name and values, between TABs), then an
// empty line. An answer is a line an output, or `error`, its code and its message; then an empty line.

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

static std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
  return fields;
}

static Tensor Batch(const std::vector<std::string>& fields, DataType type) {
  const int64_t size = fields.size() - 1;
  Tensor tensor(type, TensorShape({size}));
  for (int64_t i = 0; i < size; ++i) {
    if (type == tensorflow::DT_STRING) {
      tensor.vec<tstring>()(i) = fields[i + 1];
    } else {
      tensor.vec<int32_t>()(i) = std::stoi(fields[i + 1]);
    }
  }
  return tensor;
}

static void Print(const std::string& name, const Tensor& tensor) {
  std::cout << name;
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    std::cout << '\t';
    if (tensor.dtype() == tensorflow::DT_STRING) {
      std::cout << std::string(tensor.flat<tstring>()(i));
    } else if (tensor.dtype() == tensorflow::DT_BOOL) {
      std::cout << tensor.flat<bool>()(i);
    } else {
      char text[32];
      std::snprintf(text, sizeof text, "%.9g", tensor.flat<float>()(i));
      std::cout << text;
    }
  }
  std::cout << '\n';
}

int main(int argc, char** argv) {
  tensorflow::SavedModelBundle bundle;
  const auto loaded = tensorflow::LoadSavedModel({}, {}, argv[1], {"serve"}, &bundle);
  if (!loaded.ok()) {
    std::cerr << loaded.ToString() << '\n';
    return 1;
  }
  for (std::string name; std::getline(std::cin, name);) {
    const auto& signature = bundle.GetSignatures().at(name);
    std::vector<std::pair<std::string, Tensor>> inputs;
    for (std::string line; std::getline(std::cin, line) && !line.empty();) {
      const auto fields = Fields(line);
      const auto& input = signature.inputs().at(fields[0]);
      inputs.emplace_back(input.name(), Batch(fields, input.dtype()));
    }
    std::vector<std::string> names, fetches;
    for (const auto& [output, info] : signature.outputs()) {
      names.push_back(output);
      fetches.push_back(info.name());
    }
    std::vector<Tensor> answers;
    const auto status = bundle.GetSession()->Run(inputs, fetches, {}, &answers);
    if (status.ok()) {
      for (size_t i = 0; i < names.size(); ++i) Print(names[i], answers[i]);
    } else {
      std::cout << "error\t" << static_cast<int>(status.code()) << '\t'
                << status.message().substr(0, status.message().find('\n')) << '\n';
    }
    std::cout << '\n';
  }
  return 0;
}
