// Runs policy.onnx of a bundle with the C API of onnxruntime.
//
//   g++ -std=c++17 -O2 policy.cpp -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime -o policy
//   ./policy bundle/policy.onnx < steps.txt
//
// Each line of the input is one step: the observation, then the clearance (or cost) of each constraint,
// which the first step of an episode may leave out. A line "reset" begins a new episode. Each line of the
// output is one action.
// It does not check hashes and has no monitor: verify the bundle first, and watch over the robot.

#include <onnxruntime_c_api.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static const OrtApi* const api = [] {
  // A library older than the header has no API of its version.
  const OrtApi* found = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (found == nullptr) {
    std::fprintf(stderr, "onnxruntime %s is too old for this program, which was built for API version %d\n",
                 OrtGetApiBase()->GetVersionString(), ORT_API_VERSION);
    std::exit(2);
  }
  return found;
}();

static void check(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = api->GetErrorMessage(status);
  api->ReleaseStatus(status);
  throw std::runtime_error(message);
}

class Policy {
 public:
  explicit Policy(const char* path) {
    check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "policy", &env_));
    OrtSessionOptions* options = nullptr;
    check(api->CreateSessionOptions(&options));
    check(api->SetIntraOpNumThreads(options, 1));
    check(api->CreateSession(env_, path, options, &session_));
    api->ReleaseSessionOptions(options);
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory_));
    read_names();
    reset();
  }
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  ~Policy() {
    api->ReleaseMemoryInfo(memory_);
    api->ReleaseSession(session_);
    api->ReleaseEnv(env_);
  }

  // An episode begins: the running maximum is 0, and nothing has been measured.
  void reset() {
    maximum_.assign(constraints(), 0.0f);
    first_ = true;
  }

  size_t observation_size() const { return sizes_[0]; }
  size_t constraints() const { return inputs_.size() > 1 ? sizes_[1] : 0; }

  // The action for one observation. In the first step of an episode nothing needs to be measured.
  std::vector<float> operator()(std::vector<float> observation, std::vector<float> measured) {
    const bool clearance = inputs_.size() > 1 && inputs_[1] == "clearance";
    const bool missing = first_ && measured.empty();
    if (missing) measured.assign(constraints(), 0.0f);
    if (observation.size() != observation_size() || measured.size() != constraints())
      throw std::invalid_argument("the observation or what was measured has a wrong size");
    for (const auto* values : {&observation, &measured})
      for (float x : *values)
        if (!std::isfinite(x)) throw std::invalid_argument("an input is not finite");
    if (missing && clearance) measured.assign(constraints(), std::numeric_limits<float>::infinity());
    std::vector<std::vector<float>*> buffers{&observation, &measured, &maximum_};
    std::vector<OrtValue*> given(inputs_.size(), nullptr), found(outputs_.size(), nullptr);
    std::vector<const char*> input_names, output_names;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int64_t shape[2] = {1, static_cast<int64_t>(buffers[i]->size())};
      check(api->CreateTensorWithDataAsOrtValue(
          memory_, buffers[i]->data(), buffers[i]->size() * sizeof(float), shape, 2,
          ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &given[i]));
      input_names.push_back(inputs_[i].c_str());
    }
    for (const auto& name : outputs_) output_names.push_back(name.c_str());
    check(api->Run(session_, nullptr, input_names.data(), given.data(), given.size(),
                   output_names.data(), output_names.size(), found.data()));
    std::vector<float> action = values(found[0]);
    if (found.size() > 1) maximum_ = values(found[1]);
    for (OrtValue* value : given) api->ReleaseValue(value);
    for (OrtValue* value : found) api->ReleaseValue(value);
    first_ = false;
    return action;
  }

 private:
  void read_names() {
    OrtAllocator* allocator = nullptr;
    check(api->GetAllocatorWithDefaultOptions(&allocator));
    size_t count = 0;
    check(api->SessionGetInputCount(session_, &count));
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      check(api->SessionGetInputName(session_, i, allocator, &name));
      inputs_.emplace_back(name);
      check(api->AllocatorFree(allocator, name));
      OrtTypeInfo* type = nullptr;
      check(api->SessionGetInputTypeInfo(session_, i, &type));
      const OrtTensorTypeAndShapeInfo* tensor = nullptr;
      check(api->CastTypeInfoToTensorInfo(type, &tensor));
      int64_t shape[2] = {0, 0};
      check(api->GetDimensions(tensor, shape, 2));
      sizes_.push_back(static_cast<size_t>(shape[1]));
      api->ReleaseTypeInfo(type);
    }
    check(api->SessionGetOutputCount(session_, &count));
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      check(api->SessionGetOutputName(session_, i, allocator, &name));
      outputs_.emplace_back(name);
      check(api->AllocatorFree(allocator, name));
    }
  }

  static std::vector<float> values(OrtValue* value) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api->GetTensorTypeAndShape(value, &info));
    size_t count = 0;
    check(api->GetTensorShapeElementCount(info, &count));
    api->ReleaseTensorTypeAndShapeInfo(info);
    void* data = nullptr;
    check(api->GetTensorMutableData(value, &data));
    const auto* first = static_cast<const float*>(data);
    return {first, first + count};
  }

  OrtEnv* env_ = nullptr;
  OrtSession* session_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
  std::vector<std::string> inputs_, outputs_;
  std::vector<size_t> sizes_;
  std::vector<float> maximum_;
  bool first_ = true;
};

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: policy POLICY.ONNX < STEPS\n";
    return 2;
  }
  try {
    Policy policy(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "reset") {
        policy.reset();
        continue;
      }
      std::istringstream words(line);
      std::vector<float> numbers;
      for (float x; words >> x;) numbers.push_back(x);
      if (!words.eof() || numbers.size() < policy.observation_size())
        throw std::invalid_argument("a line does not hold the numbers of one step: " + line);
      const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(policy.observation_size());
      for (float a : policy({numbers.begin(), end}, {end, numbers.end()})) std::printf("%.9g ", a);
      std::printf("\n");
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
