#include "operators/cuda/cudnn.h"

#include "operators/cuda/cudnn_plan.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/device/cuda/cuda_error.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

constexpr size_t kMostPlans = 1024;
constexpr int64_t kWorkspaceAlignment = 256;
// What an engine may need besides a copy of each operand in another layout: sums of parts, for example.
constexpr int64_t kMostExtraWorkspace = int64_t{128} << 20;
constexpr int64_t kMostConfigurations = 64;  // of one list; they get worse towards its end

// The names of the arrays in a graph.
constexpr int64_t kX = 1, kWeight = 2, kY = 3, kBias = 4, kResult = 5;

struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, weight, y, convolution, alpha, beta;
};

OperationNames names_of(ConvolutionPart part) {
  switch (part) {
    case ConvolutionPart::x:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionPart::weight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

cudnnDataType_t cudnn_type(DType type) {
  switch (type) {
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

cudnnDataType_t computing_type(DType type) {
  return type == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

using Sizes = std::array<int64_t, 5>;

int64_t elements(const Sizes& sizes, int32_t axes) {
  int64_t n = 1;
  for (int32_t i = 0; i < 2 + axes; ++i) n *= sizes[static_cast<size_t>(i)];
  return n;
}

CudnnDescriptor tensor_descriptor(const CudnnProblem& p, int64_t name, const Sizes& sizes,
                                  cudnnDataType_t type, int64_t alignment, bool in_memory = true) {
  const size_t rank = static_cast<size_t>(p.axes) + 2;
  std::array<size_t, 5> order{};  // the dimensions from the last one in memory to the first
  size_t count = 0;
  if (p.channels_last) order[count++] = 1;
  for (size_t i = rank; i-- > 0;)
    if (i != 1 || !p.channels_last) order[count++] = i;
  Sizes strides{};
  int64_t stride = 1;
  for (size_t i = 0; i < rank; ++i) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  CudnnDescriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, name);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(sizes.data(), rank));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(strides.data(), rank));
  if (!in_memory) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  d.finalize();
  return d;
}

CudnnDescriptor convolution_descriptor(const CudnnProblem& p) {
  const auto axes = static_cast<size_t>(p.axes);
  CudnnDescriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{p.axes});
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, computing_type(p.dtype));
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const int64_t>(p.before.data(), axes));
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const int64_t>(p.after.data(), axes));
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const int64_t>(p.stride.data(), axes));
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const int64_t>(p.dilation.data(), axes));
  d.finalize();
  return d;
}

/// The graph of operations, which is its last descriptor. All of them are kept as long as plans use it.
std::vector<CudnnDescriptor> graph_of(const CudnnProblem& p, cudnnHandle_t handle) {
  const OperationNames names = names_of(p.part);
  const cudnnDataType_t type = cudnn_type(p.dtype), sums = computing_type(p.dtype);
  const auto part = static_cast<size_t>(p.part == ConvolutionPart::y   ? 2
                                        : p.part == ConvolutionPart::x ? 0
                                                                       : 1);
  const std::array<const Sizes*, 3> sizes = {&p.x, &p.weight, &p.y};
  std::vector<CudnnDescriptor> all;
  all.reserve(9);
  for (size_t i = 0; i < 3; ++i) {
    // With a bias, the result of the convolution is not rounded and not stored.
    const bool between = p.with_bias && i == part;
    all.push_back(tensor_descriptor(p, kX + static_cast<int64_t>(i), *sizes[i], between ? sums : type,
                                    p.alignment[i], !between));
  }
  all.push_back(convolution_descriptor(p));
  CudnnDescriptor operation(names.type);
  operation.set(names.x, all[0]);
  operation.set(names.weight, all[1]);
  operation.set(names.y, all[2]);
  operation.set(names.convolution, all[3]);
  if (p.dtype == DType::f64) {
    operation.set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0);
    operation.set(names.beta, CUDNN_TYPE_DOUBLE, 0.0);
  } else {
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0F);
  }
  operation.finalize();
  std::vector<cudnnBackendDescriptor_t> operations = {operation.raw()};
  all.push_back(std::move(operation));
  if (p.with_bias) {
    Sizes channels{1, (*sizes[part])[1], 1, 1, 1};
    all.push_back(tensor_descriptor(p, kBias, channels, type, static_cast<int64_t>(size_of(p.dtype))));
    all.push_back(tensor_descriptor(p, kResult, *sizes[part], type, p.alignment[part]));
    CudnnDescriptor sum(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sum.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    sum.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sums);
    sum.finalize();
    CudnnDescriptor addition(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, sum);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, all[part]);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, all[5]);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, all[6]);
    addition.finalize();
    operations.push_back(addition.raw());
    all.push_back(std::move(sum));
    all.push_back(std::move(addition));
  }
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(operations));
  graph.finalize();
  all.push_back(std::move(graph));
  return all;
}

/// The engine configurations that the library proposes, best first. None if it refuses.
std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode) {
  std::vector<CudnnDescriptor> found;
  try {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    heuristics.finalize();
    // The library fills descriptors that exist. The first number may be larger than the second one.
    const int64_t room =
        std::min(kMostConfigurations,
                 heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < room; ++i) {
      found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(found.back().raw());
    }
    if (room == 0) return found;
    const int64_t count =
        heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, raw.data());
    while (static_cast<int64_t>(found.size()) > std::clamp<int64_t>(count, 0, room)) found.pop_back();
  } catch (const CudnnError& error) {
    log(LogLevel::debug, error.what());
    found.clear();
  }
  return found;
}

bool is_allowed(const CudnnProblem& p, cudnnBackendNumericalNote_t note) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      // Tensor cores multiply f16, bf16 and f64 exactly. Operands of f32 they round to TF32.
      return p.dtype != DType::f32 || p.tf32;
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return true;
    default:  // also notes of newer versions
      return false;
  }
}

bool is_allowed(const CudnnProblem& p, const CudnnDescriptor& configuration) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  (void)configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  std::array<cudnnBackendNumericalNote_t, 32> notes{};
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   std::ssize(notes), notes.data());
  std::array<cudnnBackendBehaviorNote_t, 32> behavior{};
  const int64_t behaviors = engine.get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                       std::ssize(behavior), behavior.data());
  const auto is_compiled = [](cudnnBackendBehaviorNote_t note) {
    return note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  };
  return std::all_of(notes.begin(), notes.begin() + std::clamp<int64_t>(count, 0, std::ssize(notes)),
                     [&](cudnnBackendNumericalNote_t note) { return is_allowed(p, note); }) &&
         std::none_of(behavior.begin(),
                      behavior.begin() + std::clamp<int64_t>(behaviors, 0, std::ssize(behavior)),
                      is_compiled);
}

int64_t most_workspace(const CudnnProblem& p) {
  return kMostExtraWorkspace + (elements(p.x, p.axes) + elements(p.weight, p.axes) + elements(p.y, p.axes)) *
                                   static_cast<int64_t>(size_of(p.dtype));
}

/// A plan, with all that it refers to.
struct Built {
  std::vector<CudnnDescriptor> descriptors;  // the last one is the plan
  int64_t workspace = 0;
};

std::optional<Built> build(const CudnnProblem& p, cudnnHandle_t handle) {
  Built built{graph_of(p, handle)};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (CudnnDescriptor& configuration : configurations(built.descriptors.back(), mode)) try {
        if (!is_allowed(p, configuration)) continue;
        CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
        plan.finalize();
        (void)plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &built.workspace);
        if (built.workspace > most_workspace(p)) continue;
        built.descriptors.push_back(std::move(configuration));
        built.descriptors.push_back(std::move(plan));
        return built;
      } catch (const CudnnError& error) {  // not for this device or these sizes
        log(LogLevel::debug, error.what());
      }
  return std::nullopt;
}

std::string describe(const CudnnProblem& p) {
  const auto list = [&](const auto& numbers, int32_t count) {
    std::string text;
    for (int32_t i = 0; i < count; ++i)
      text += (i == 0 ? "(" : ", ") + std::to_string(numbers[static_cast<size_t>(i)]);
    return text + ")";
  };
  const char* const part = p.part == ConvolutionPart::y   ? "a convolution"
                           : p.part == ConvolutionPart::x ? "a transposed convolution"
                                                          : "the gradient of weights";
  return mx::detail::concat(part, " of ", to_string(p.dtype), p.with_bias ? " with a bias" : "", ", images ",
                            list(p.x, p.axes + 2), ", weight ", list(p.weight, p.axes + 2), ", stride ",
                            list(p.stride, p.axes), ", padding ", list(p.before, p.axes), ", dilation ",
                            list(p.dilation, p.axes));
}

struct PlanCache {
  std::mutex mutex;
  std::map<CudnnProblem, std::shared_ptr<CudnnPlan>> plans;  // guarded by mutex; null: there is none

  /// Returns none if nothing is known about the problem.
  std::optional<std::shared_ptr<CudnnPlan>> find(const CudnnProblem& problem) {
    const std::lock_guard lock(mutex);
    const auto at = plans.find(problem);
    return at == plans.end() ? std::nullopt : std::optional(at->second);
  }
  /// Stores a plan, or null.
  void put(const CudnnProblem& problem, const std::shared_ptr<CudnnPlan>& plan) {
    std::map<CudnnProblem, std::shared_ptr<CudnnPlan>> dropped;  // destroyed without the lock
    const std::lock_guard lock(mutex);
    if (plans.size() >= kMostPlans) plans.swap(dropped);
    plans[problem] = plan;
  }
};

PlanCache& plan_cache() {
  // Never destroyed: the library may be gone when the process ends.
  static PlanCache& all = *new PlanCache;
  return all;
}

std::atomic<int64_t>& executions() {
  static std::atomic<int64_t> count{0};
  return count;
}

void log_missing(const CudnnProblem& problem, const char* why) {
  log(LogLevel::info, "cuDNN does not compute ", describe(problem), ": ", why);
}

void log_unusable(const char* why) {
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true))
    log(LogLevel::warning, "own kernels compute convolutions on GPUs, because cuDNN cannot be used: ", why);
}

}  // namespace

class CudnnPlan {
 public:
  CudnnPlan(const CudnnProblem& problem, Built built) : problem_(problem), built_(std::move(built)) {}

  const CudnnProblem& problem() const { return problem_; }

  void run(const KernelArgs& args, const CudnnOperands& o) {
    const int64_t bytes = built_.workspace;
    const Scratch scratch(args, bytes <= 0 ? 0 : static_cast<size_t>(bytes + kWorkspaceAlignment));
    const auto start = reinterpret_cast<uintptr_t>(scratch.data()) + kWorkspaceAlignment - 1;
    void* const workspace =
        bytes <= 0 ? nullptr : reinterpret_cast<void*>(start - start % uintptr_t{kWorkspaceAlignment});
    std::array<int64_t, 4> names = {kX, kWeight, kY, kBias};
    const std::array<void*, 4> data = {o.x, o.weight, o.y, const_cast<void*>(o.bias)};
    const size_t count = problem_.with_bias ? 4 : 3;
    if (problem_.with_bias)  // the sum is stored, not the result of the convolution
      names[problem_.part == ConvolutionPart::y ? 2 : 0] = kResult;
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(names.data(), count));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::span<void* const>(data.data(), count));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    const CudnnHandle handle(problem_.device);
    auto* const stream =
        static_cast<cudaStream_t>(args.device == nullptr ? nullptr : args.device->native_stream());
    // The library may prepare the stream and load the code of its kernels here. Launches are captured in this
    // mode, too.
    const CaptureExempt exempt;
    check_cudnn(cudnn().set_stream(handle.raw(), stream), "cudnnSetStream");
    check_cudnn(cudnn().execute(handle.raw(), built_.descriptors.back().raw(), pack.raw()),
                "cudnnBackendExecute");
  }

 private:
  const CudnnProblem problem_;
  const Built built_;
};

bool cudnn_is_usable() {
  static const bool usable = [] {
    const char* const value = std::getenv("MX_CUDNN");
    if (value != nullptr && std::string_view(value) == "0") return false;
    try {
      return cudnn().version() > 0;
    } catch (const DeviceError& error) {
      log(LogLevel::warning,
          "own kernels compute convolutions on GPUs, because cuDNN cannot be loaded: ", error.what());
      return false;
    }
  }();
  return usable;
}

std::shared_ptr<CudnnPlan> cudnn_plan(const CudnnProblem& problem) {
  if (!cudnn_is_usable()) return nullptr;
  PlanCache& cache = plan_cache();
  if (const auto known = cache.find(problem)) return *known;
  std::shared_ptr<CudnnPlan> plan;
  std::optional<CudnnHandle> handle;
  try {
    handle.emplace(problem.device);
    if (const auto known = cache.find(problem)) return *known;  // another thread had the handle
  } catch (const CudnnError& error) {
    log_unusable(error.what());
    cache.put(problem, nullptr);
    return nullptr;
  }
  try {
    // The thread may be capturing a graph. Building a plan may allocate memory and load code, and it does not
    // touch the stream.
    const CaptureExempt exempt;
    if (std::optional<Built> built = build(problem, handle->raw()))
      plan = std::make_shared<CudnnPlan>(problem, std::move(*built));
    else
      log_missing(problem, "it has no engine");
  } catch (const CudnnError& error) {
    log_missing(problem, error.what());
  }
  cache.put(problem, plan);
  return plan;
}

bool run_cudnn(const KernelArgs& args, const std::shared_ptr<CudnnPlan>& plan,
               const CudnnOperands& operands) {
  try {
    plan->run(args, operands);
    executions().fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (const CudnnError& error) {
    if (error.of_execution()) throw;
    log_missing(plan->problem(), error.what());
    plan_cache().put(plan->problem(), nullptr);
    return false;
  }
}

int64_t cudnn_executions() { return executions().load(std::memory_order_relaxed); }

std::string cudnn_device_json(int device) {
  const CudnnHandle handle(device);
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t{device});
  properties.finalize();
  std::string text(static_cast<size_t>(properties.get(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                      CUDNN_TYPE_CHAR, 0, nullptr)),
                   '\0');
  const int64_t count = properties.get(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                       static_cast<int64_t>(text.size()), text.data());
  text.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(text.size()))));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

}  // namespace mx::cuda
