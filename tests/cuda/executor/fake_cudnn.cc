#include "operators/cuda/cudnn.h"

#include "tests/cuda/executor/fake_cudnn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ndarray/cuda/host_threads.h"
#include "tests/cuda/executor/fake_convolution.h"

namespace mx::test {
namespace {

using cuda::Cudnn;
using Raw = cudnnBackendDescriptor_t;

Cudnn& real_cudnn() {
  static Cudnn functions{};
  return functions;
}

struct FakePack {
  std::vector<int64_t> names;
  std::vector<void*> addresses;
  void* workspace = nullptr;
  bool is_finalized = false;
};

struct FakeHandle {
  int device = -1;
  cudaStream_t stream = nullptr;
  std::atomic<bool> is_used{false};
};

/// What is known about descriptors. The library does not give back alignments, modes of pointwise operations,
/// the operations of a graph and their operands.
struct Known {
  std::mutex mutex;
  std::map<Raw, int64_t> alignments;              // of arrays
  std::map<Raw, cudnnPointwiseMode_t> pointwise;  // what pointwise operations do
  std::map<Raw, FakePack> packs;
  std::map<std::pair<Raw, cudnnBackendAttributeName_t>, Raw> inner;  // what operations refer to
  std::map<Raw, cudnnBackendDescriptorType_t> types;
  std::map<Raw, std::shared_ptr<const FakeGraph>> graphs;  // of graphs, heuristics, configurations and plans
  std::map<Raw, std::shared_ptr<std::atomic<bool>>> busy;  // plans that are being executed
  FakeEngine engine;
};
Known& known() {
  static Known all;
  return all;
}

std::shared_ptr<const FakeGraph> graph_of(Raw descriptor) {
  const std::lock_guard lock(known().mutex);
  const auto at = known().graphs.find(descriptor);
  return at == known().graphs.end() ? nullptr : at->second;
}

cudnnStatus_t refused(const std::string& why) {
  ADD_FAILURE() << "[fake cuDNN] " << why;
  return CUDNN_STATUS_BAD_PARAM;
}

template <class T>
std::vector<T> values_of(Raw descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  std::vector<T> values(32);
  int64_t count = 0;
  const cudnnStatus_t status = real_cudnn().get(descriptor, name, type, 32, &count, values.data());
  EXPECT_EQ(CUDNN_STATUS_SUCCESS, status) << "attribute " << name;
  values.resize(status == CUDNN_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  return values;
}
template <class T>
T value_of(Raw descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  T value{};
  int64_t count = 0;
  EXPECT_EQ(CUDNN_STATUS_SUCCESS, real_cudnn().get(descriptor, name, type, 1, &count, &value))
      << "attribute " << name;
  return value;
}
std::vector<int64_t> integers_of(Raw descriptor, cudnnBackendAttributeName_t name) {
  return values_of<int64_t>(descriptor, name, CUDNN_TYPE_INT64);
}

/// A copy of a descriptor that another one refers to.
class Inner {
 public:
  Inner(Raw outer, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(CUDNN_STATUS_SUCCESS, real_cudnn().descriptor_create(type, &raw));
    int64_t count = 0;
    EXPECT_EQ(CUDNN_STATUS_SUCCESS,
              real_cudnn().get(outer, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  }
  ~Inner() { (void)real_cudnn().descriptor_destroy(raw); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  Raw raw = nullptr;
};

Raw inner_of(Raw operation, cudnnBackendAttributeName_t name) {
  const std::lock_guard lock(known().mutex);
  const Raw inner = known().inner.at({operation, name});
  EXPECT_TRUE(known().types.count(inner) == 1) << "destroyed too early";
  return inner;
}

FakeTensor tensor_of(Raw operation, cudnnBackendAttributeName_t name) {
  const Raw d = inner_of(operation, name);
  FakeTensor t;
  t.name = value_of<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64);
  {
    const std::lock_guard lock(known().mutex);
    t.alignment = known().alignments.at(d);
  }
  t.type = value_of<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
  t.is_virtual = value_of<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN);
  t.sizes = integers_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.strides = integers_of(d, CUDNN_ATTR_TENSOR_STRIDES);
  return t;
}

void read_convolution(FakeGraph& graph, Raw operation, cudnnBackendDescriptorType_t type) {
  using Name = cudnnBackendAttributeName_t;
  std::array<Name, 6> names = {
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  graph.part = 2;
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    names = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    graph.part = 0;
  } else if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
    names = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    graph.part = 1;
  }
  for (size_t i = 0; i < 3; ++i) graph.arrays[i] = tensor_of(operation, names[i]);
  const Raw c = inner_of(operation, names[3]);
  graph.before = integers_of(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  graph.after = integers_of(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  graph.stride = integers_of(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  graph.dilation = integers_of(c, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  // The library sets the mode as CUDNN_TYPE_CONVOLUTION_MODE, and gives it as this type only.
  EXPECT_EQ(CUDNN_CROSS_CORRELATION,
            value_of<cudnnConvolutionMode_t>(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_DATA_TYPE));
  EXPECT_EQ(static_cast<int64_t>(graph.before.size()),
            value_of<int64_t>(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64));
  const bool wide = graph.arrays[0].type == CUDNN_DATA_DOUBLE;
  EXPECT_EQ(wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT,
            value_of<cudnnDataType_t>(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE));
  if (wide) {
    EXPECT_EQ(1, value_of<double>(operation, names[4], CUDNN_TYPE_DOUBLE));
    EXPECT_EQ(0, value_of<double>(operation, names[5], CUDNN_TYPE_DOUBLE));
  } else {
    EXPECT_EQ(1, value_of<float>(operation, names[4], CUDNN_TYPE_FLOAT));
    EXPECT_EQ(0, value_of<float>(operation, names[5], CUDNN_TYPE_FLOAT));
  }
}

void read_sum(FakeGraph& graph, Raw operation) {
  const Raw d = inner_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  {
    const std::lock_guard lock(known().mutex);
    EXPECT_EQ(CUDNN_POINTWISE_ADD, known().pointwise.at(d));
  }
  const FakeTensor x = tensor_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  graph.bias = tensor_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  graph.sum = tensor_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  EXPECT_EQ(graph.arrays[static_cast<size_t>(graph.part)].name, x.name);
  EXPECT_TRUE(x.is_virtual);
  EXPECT_NE(CUDNN_DATA_HALF, x.type) << "rounded twice";
  EXPECT_NE(CUDNN_DATA_BFLOAT16, x.type) << "rounded twice";
  EXPECT_EQ(x.sizes, graph.sum->sizes);
}

std::shared_ptr<const FakeGraph> read_graph(const Raw* operations, int64_t count) {
  auto graph = std::make_shared<FakeGraph>();
  for (int64_t i = 0; i < count; ++i) {
    cudnnBackendDescriptorType_t type{};
    {
      const std::lock_guard lock(known().mutex);
      type = known().types[operations[i]];
    }
    type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ? read_sum(*graph, operations[i])
                                                         : read_convolution(*graph, operations[i], type);
  }
  return graph;
}

std::string description(FakeGpu gpu) {
  struct Numbers {
    const char* name;
    int version, processors, shared, blocks, cache_mb;
  };
  const Numbers n = gpu == FakeGpu::a100   ? Numbers{"NVIDIA A100", 800, 108, 166912, 32, 40}
                    : gpu == FakeGpu::b200 ? Numbers{"NVIDIA B200", 1000, 148, 232448, 32, 126}
                                           : Numbers{"NVIDIA H200", 900, 132, 232448, 32, 60};
  const auto field = [](const char* name, int64_t value) {
    return std::string("\"") + name + "\":" + std::to_string(value) + ",";
  };
  return "{" + field("cudaDeviceId", 0) + field("deviceVer", n.version) + field("driverVer", 13000) +
         field("totalGlobalMem", int64_t{80} << 30) + R"("maxGridSize":[2147483647,65535,65535],)" +
         R"("maxBlockSize":[1024,1024,64],)" + field("regsPerBlock", 65536) +
         field("multiProcessorCount", n.processors) + field("warpSize", 32) +
         field("maxSharedMemoryPerBlock", 49152) + field("maxSharedMemoryPerBlockOptin", n.shared) +
         field("reservedSharedMemoryPerBlock", 1024) + field("maxRegistersPerSM", 65536) +
         field("maxCtasPerSM", n.blocks) + field("maxThreadsPerBlock", 1024) +
         field("maxThreadsPerSM", 2048) + field("pciDeviceId", 0) + field("isTccDriver", 0) +
         field("supportCoopLaunch", 1) + field("smClockRateKHz", 1980000) +
         field("memClockRateKHz", 3201000) + field("l2CacheSize", int64_t{n.cache_mb} << 20) +
         "\"deviceName\":\"" + n.name + "\"}";
}

Raw described_device() {
  static std::mutex mutex;
  static std::map<FakeGpu, Raw> devices;
  const std::lock_guard lock(mutex);
  Raw& device = devices[fake_cudnn().gpu];
  if (device != nullptr) return device;
  const std::string json = description(fake_cudnn().gpu);
  EXPECT_EQ(CUDNN_STATUS_SUCCESS,
            real_cudnn().descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device));
  EXPECT_EQ(CUDNN_STATUS_SUCCESS, real_cudnn().set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                   CUDNN_TYPE_CHAR, std::ssize(json), json.data()));
  EXPECT_EQ(CUDNN_STATUS_SUCCESS, real_cudnn().finalize(device));
  return device;
}

cudnnStatus_t set_device(Raw descriptor, cudnnBackendAttributeName_t name) {
  Raw device = described_device();
  return real_cudnn().set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
}

bool is_handle(const void* value) {
  cudnnHandle_t handle = nullptr;
  std::memcpy(&handle, value, sizeof handle);
  return handle != nullptr;
}

/// Allocates memory, as the library may do in any call. Returns false if that fails, because the thread
/// captures a graph and is not exempt from the rules of captures.
bool may_allocate() {
  if (fake_cudnn().device_of == nullptr) return true;
  void* memory = nullptr;
  return cudaMalloc(&memory, 256) == cudaSuccess && cudaFree(memory) == cudaSuccess;
}

cudnnStatus_t fake_create(cudnnHandle_t* handle) {
  if (fake_cudnn().no_handles) return CUDNN_STATUS_NOT_INITIALIZED;
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  ++fake_cudnn().handles;
  auto* const made = new FakeHandle;  // never destroyed, as the library's
  if (fake_cudnn().device_of != nullptr && cudaGetDevice(&made->device) != cudaSuccess)
    return refused("expected a current device");
  *handle = reinterpret_cast<cudnnHandle_t>(made);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  auto& own = *reinterpret_cast<FakeHandle*>(handle);
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  if (const auto device_of = fake_cudnn().device_of; device_of != nullptr && device_of(stream) != own.device)
    return refused("expected a stream of the handle's device");
  own.stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_descriptor_create(cudnnBackendDescriptorType_t type, Raw* descriptor) {
  const cudnnStatus_t status = real_cudnn().descriptor_create(type, descriptor);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  ++fake_cudnn().descriptors;
  const std::lock_guard lock(known().mutex);
  known().types[*descriptor] = type;
  return status;
}

cudnnStatus_t fake_descriptor_destroy(Raw descriptor) {
  {
    const std::lock_guard lock(known().mutex);
    known().types.erase(descriptor);
    known().graphs.erase(descriptor);
    known().busy.erase(descriptor);
    known().alignments.erase(descriptor);
    known().packs.erase(descriptor);
  }
  --fake_cudnn().descriptors;
  return real_cudnn().descriptor_destroy(descriptor);
}

void refer(Raw from, Raw to) {
  const std::lock_guard lock(known().mutex);
  known().graphs[from] = known().graphs[to];
}

cudnnStatus_t fake_set(Raw d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void* values) {
  switch (name) {
    case CUDNN_ATTR_DEVICEPROP_DEVICE_ID: {
      const std::string json = description(fake_cudnn().gpu);
      return real_cudnn().set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json),
                              json.data());
    }
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
      return is_handle(values) ? CUDNN_STATUS_SUCCESS : refused("expected a handle for the graph");
    case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
      return is_handle(values) ? set_device(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
                               : refused("expected a handle for the plan");
    case CUDNN_ATTR_OPERATIONGRAPH_OPS: {
      auto graph = read_graph(static_cast<const Raw*>(values), count);
      const std::lock_guard lock(known().mutex);
      known().graphs[d] = std::move(graph);
      break;
    }
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
      ++fake_cudnn().searches;
      refer(d, *static_cast<const Raw*>(values));
      if (const cudnnStatus_t status = set_device(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
          status != CUDNN_STATUS_SUCCESS)
        return status;
      break;
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
      refer(d, *static_cast<const Raw*>(values));
      break;
    case CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: {
      const std::lock_guard lock(known().mutex);
      known().alignments[d] = *static_cast<const int64_t*>(values);
      break;
    }
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: {
      const std::lock_guard lock(known().mutex);
      const auto* const from = static_cast<const int64_t*>(values);
      known().packs[d].names.assign(from, from + count);
      break;
    }
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: {
      const std::lock_guard lock(known().mutex);
      auto* const* const from = static_cast<void* const*>(values);
      known().packs[d].addresses.assign(from, from + count);
      break;
    }
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE: {
      const std::lock_guard lock(known().mutex);
      known().packs[d].workspace = *static_cast<void* const*>(values);
      break;
    }
    case CUDNN_ATTR_POINTWISE_MODE: {
      const std::lock_guard lock(known().mutex);
      known().pointwise[d] = *static_cast<const cudnnPointwiseMode_t*>(values);
      break;
    }
    default:
      if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const std::lock_guard lock(known().mutex);
        known().inner[{d, name}] = *static_cast<const Raw*>(values);
      }
      break;
  }
  return real_cudnn().set(d, name, type, count, values);
}

cudnnStatus_t fake_get(Raw d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t room, int64_t* count, void* values) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && fake_cudnn().no_engines) {
    *count = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  const cudnnStatus_t status = real_cudnn().get(d, name, type, room, count, values);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && status == CUDNN_STATUS_SUCCESS && values != nullptr)
    for (int64_t i = 0; i < *count; ++i) refer(static_cast<Raw*>(values)[i], d);
  return status;
}

FakeEngine engine_of(Raw plan) {
  const Inner configuration(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                            CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const Inner engine(configuration.raw, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  FakeEngine result;
  result.number = value_of<int64_t>(engine.raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
  result.workspace = value_of<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  for (const auto note : values_of<cudnnBackendNumericalNote_t>(engine.raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                CUDNN_TYPE_NUMERICAL_NOTE))
    result.numerical_notes.push_back(note);
  for (const auto note : values_of<cudnnBackendBehaviorNote_t>(engine.raw, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                               CUDNN_TYPE_BEHAVIOR_NOTE))
    result.behavior_notes.push_back(note);
  return result;
}

cudnnStatus_t fake_finalize(Raw d) {
  const cudnnStatus_t status = real_cudnn().finalize(d);
  const std::lock_guard lock(known().mutex);
  if (status == CUDNN_STATUS_SUCCESS && known().types[d] == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
    ++fake_cudnn().plans;
    known().busy[d] = std::make_shared<std::atomic<bool>>(false);
    known().engine = engine_of(d);
  }
  if (status == CUDNN_STATUS_SUCCESS && known().types[d] == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    known().packs[d].is_finalized = true;
  return status;
}

/// Returns what is wrong with the addresses, or nothing.
std::string problem_of(const FakeGraph& graph, const std::map<int64_t, void*>& data) {
  size_t in_memory = 0;
  const auto check = [&](const FakeTensor& t) -> std::string {
    const auto at = data.find(t.name);
    if (t.is_virtual) return at == data.end() ? "" : "an address for a virtual array";
    ++in_memory;
    if (at == data.end() || at->second == nullptr) return "no address for array " + std::to_string(t.name);
    if (reinterpret_cast<uintptr_t>(at->second) % static_cast<uintptr_t>(t.alignment) != 0)
      return "array " + std::to_string(t.name) + " less aligned than its descriptor says";
    return "";
  };
  std::string wrong;
  for (const FakeTensor& t : graph.arrays) wrong += check(t);
  if (graph.bias) wrong += check(*graph.bias) + check(*graph.sum);
  return in_memory == data.size() || !wrong.empty() ? wrong : "addresses of other arrays";
}

/// Whether something is in use, for a scope.
class Use {
 public:
  explicit Use(std::atomic<bool>& used) : used_(used), is_first_(!used.exchange(true)) {}
  ~Use() {
    if (is_first_) used_ = false;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return is_first_; }

 private:
  std::atomic<bool>& used_;
  const bool is_first_;
};

cudnnStatus_t fake_execute(cudnnHandle_t handle, Raw plan, Raw pack) {
  if (fake_cudnn().fail_execution) return CUDNN_STATUS_EXECUTION_FAILED;
  if (fake_cudnn().refuse_execution) return CUDNN_STATUS_NOT_SUPPORTED;
  auto& own = *reinterpret_cast<FakeHandle*>(handle);
  const Use handle_use(own.is_used);
  if (!handle_use) return refused("one handle used by two threads");
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  std::shared_ptr<std::atomic<bool>> busy;
  FakePack of_call;
  {
    const std::lock_guard lock(known().mutex);
    busy = known().busy[plan];
    of_call = known().packs[pack];
  }
  if (!of_call.is_finalized) return refused("expected addresses that are finalized");
  if (busy == nullptr) return refused("expected a plan that is finalized");
  const Use plan_use(*busy);
  if (!plan_use) return refused("one plan used by two threads");
  const std::shared_ptr<const FakeGraph> graph = graph_of(plan);
  const std::vector<int64_t>& names = of_call.names;
  const std::vector<void*>& addresses = of_call.addresses;
  std::map<int64_t, void*> data;
  for (size_t i = 0; i < names.size() && i < addresses.size(); ++i) data[names[i]] = addresses[i];
  if (names.size() != addresses.size() || data.size() != names.size())
    return refused("expected a name for each address");
  if (const std::string wrong = problem_of(*graph, data); !wrong.empty()) return refused(wrong);
  const FakeEngine engine = engine_of(plan);
  void* const workspace = of_call.workspace;
  if (engine.workspace > 0 && (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0))
    return refused("expected a workspace aligned to 256 bytes");
  ++fake_cudnn().executions;
  if (graph->bias) ++fake_cudnn().biases;
  if (graph->before != graph->after) ++fake_cudnn().uneven;
  if (engine.workspace > 0) ++fake_cudnn().with_workspace;
  // Another execution that has the same workspace at the same time changes the mark in it.
  static std::atomic<uint64_t> marks{1};
  const uint64_t mark = marks++;
  const auto bytes = static_cast<size_t>(std::max<int64_t>(engine.workspace, 0));
  if (bytes > 0)
    cuda::host::launch(own.stream, 1, 1, 0, [=] {
      std::memset(workspace, 0x7f, bytes);
      std::memcpy(workspace, &mark, std::min(bytes, sizeof mark));
    });
  cuda::host::launch(own.stream, 1, 1, 0, [=, data = std::move(data)] {
    if (bytes > 0 && std::memcmp(workspace, &mark, std::min(bytes, sizeof mark)) != 0)
      (void)refused("one workspace used by two executions");
    compute(*graph, data);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeCudnn& fake_cudnn() {
  static FakeCudnn fake;
  return fake;
}

FakeEngine last_planned_engine() {
  const std::lock_guard lock(known().mutex);
  return known().engine;
}

std::string install_fake_cudnn() {
  // Where the build has found the toolkit, unless the environment says where to look.
  (void)setenv("MX_CUDA_LIBRARIES", MX_CUDA_LIBRARY_FOLDER, 0);
  try {
    real_cudnn() = cuda::cudnn();
  } catch (const DeviceError& error) {
    return error.what();
  }
  if (real_cudnn().version() < 90800) return "cuDNN is older than 9.8, which cannot plan for a described GPU";
  Cudnn functions = real_cudnn();
  functions.create = fake_create;
  functions.set_stream = fake_set_stream;
  functions.descriptor_create = fake_descriptor_create;
  functions.descriptor_destroy = fake_descriptor_destroy;
  functions.set = fake_set;
  functions.get = fake_get;
  functions.finalize = fake_finalize;
  functions.execute = fake_execute;
  cuda::replace_cudnn(functions);
  return "";
}

}  // namespace mx::test
