// Greedy search over a network that `pellucid export --onnx` has written, with the C++ API of ONNX Runtime.
//
//   g++ -std=c++20 -O2 greedy_search.cpp -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime -o greedy_search
//   ./greedy_search DIR < words.txt > outputs.txt
//
// ONNXRUNTIME is an unpacked release of ONNX Runtime (https://onnxruntime.ai); <nlohmann/json.hpp> is the package
// nlohmann-json3-dev of Debian and Ubuntu. Each line is one source in UTF-8, in the Unicode normalization form that
// pellucid.json names. Symbols of the source are characters. Copying and features are not supported here.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

constexpr std::int64_t kBos = 1, kEos = 2, kUnk = 3;

using Values = std::map<std::string, Ort::Value>;

// A graph with the names of its inputs and outputs.
class Graph {
 public:
  Graph(const Ort::Env& env, const std::string& path) : session_(env, path.c_str(), Options()) {
    Ort::AllocatorWithDefaultOptions allocator;
    for (std::size_t i = 0; i < session_.GetInputCount(); ++i)
      inputs_.push_back(session_.GetInputNameAllocated(i, allocator).get());
    for (std::size_t i = 0; i < session_.GetOutputCount(); ++i)
      outputs_.push_back(session_.GetOutputNameAllocated(i, allocator).get());
  }

  // Runs the graph; inputs are moved out of `values` for the call, and put back.
  Values Run(Values& values) {
    std::vector<const char*> names, results;
    std::vector<Ort::Value> tensors;
    for (const auto& name : inputs_) {
      names.push_back(name.c_str());
      tensors.push_back(std::move(values.at(name)));
    }
    for (const auto& name : outputs_) results.push_back(name.c_str());
    auto computed = session_.Run(Ort::RunOptions{nullptr}, names.data(), tensors.data(), tensors.size(),
                                 results.data(), results.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) values.at(inputs_[i]) = std::move(tensors[i]);
    Values outputs;
    for (std::size_t i = 0; i < outputs_.size(); ++i) outputs.emplace(outputs_[i], std::move(computed[i]));
    return outputs;
  }

 private:
  static Ort::SessionOptions Options() {
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);
    // Weights of 8 bits are dequantized once, when the graph is loaded.
    options.AddConfigEntry("session.disable_quant_qdq", "1");
    return options;
  }

  Ort::Session session_;
  std::vector<std::string> inputs_, outputs_;
};

// Returns a tensor that reads the numbers of a vector, which has to live as long as the tensor.
Ort::Value IntegerTensor(std::vector<std::int64_t>& numbers, const std::vector<std::int64_t>& shape) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<std::int64_t>(memory, numbers.data(), numbers.size(), shape.data(), shape.size());
}

// Returns the characters of a text in UTF-8.
std::vector<std::string> SplitCharacters(const std::string& text) {
  std::vector<std::string> characters;
  for (unsigned char byte : text) {
    if ((byte & 0xC0) != 0x80) characters.emplace_back();
    if (!characters.empty()) characters.back() += static_cast<char>(byte);
  }
  return characters;
}

class Model {
 public:
  explicit Model(const std::string& folder)
      : encoder_(env_, folder + "/encoder.onnx"), step_(env_, folder + "/decoder_step.onnx") {
    std::ifstream file(folder + "/pellucid.json");
    const auto settings = nlohmann::json::parse(file);
    const std::string kind = settings["target"]["kind"];
    separator_ = kind == "words" ? " " : kind == "characters" || kind == "subwords" ? "" : kind;
    target_ = settings["target"]["symbols"].get<std::vector<std::string>>();
    max_length_ = settings["search"]["max_length"];
    std::int64_t id = kUnk;
    for (const std::string symbol : settings["source"]["symbols"]) ids_[symbol] = ++id;
  }

  // Returns the output of greedy search.
  std::string Decode(const std::string& text) {
    std::vector<std::int64_t> ids;
    for (const auto& symbol : SplitCharacters(text)) {
      const auto found = ids_.find(symbol);
      ids.push_back(found == ids_.end() ? kUnk : found->second);
    }
    if (ids.empty()) return "";
    std::vector<std::int64_t> lengths{static_cast<std::int64_t>(ids.size())}, symbols{kBos};
    Values inputs;
    inputs.emplace("ids", IntegerTensor(ids, {1, lengths[0]}));
    inputs.emplace("lengths", IntegerTensor(lengths, {1}));
    Values values = encoder_.Run(inputs);
    values.emplace("lengths", IntegerTensor(lengths, {1}));
    values.emplace("symbols", IntegerTensor(symbols, {1}));
    std::string output;
    for (std::int64_t length = 0; length < max_length_; ++length) {
      Values outputs = step_.Run(values);
      symbols[0] = Best(outputs.at("log_probabilities"));  // the tensor of `values` reads this number
      if (symbols[0] == kEos) break;
      output += (output.empty() ? "" : separator_) + target_[symbols[0] - kUnk - 1];
      for (auto& [name, tensor] : outputs)
        if (name.starts_with("next_")) values.at(name.substr(5)) = std::move(tensor);
    }
    return output;
  }

 private:
  static std::int64_t Best(const Ort::Value& tensor) {
    const float* first = tensor.GetTensorData<float>();
    const auto count = tensor.GetTensorTypeAndShapeInfo().GetElementCount();
    return std::max_element(first, first + count) - first;
  }

  Ort::Env env_{ORT_LOGGING_LEVEL_WARNING, "pellucid"};
  Graph encoder_, step_;
  std::unordered_map<std::string, std::int64_t> ids_;
  std::vector<std::string> target_;
  std::string separator_;
  std::int64_t max_length_ = 0;
};

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: greedy_search DIR < FILE\n";
    return 2;
  }
  Model model(arguments[1]);
  for (std::string line; std::getline(std::cin, line);) std::cout << model.Decode(line) << '\n';
}
