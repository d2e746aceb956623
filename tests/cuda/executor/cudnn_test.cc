// Convolutions by cuDNN, over a fake of its device half, have the CPU's results; and own kernels compute them
// if the library cannot.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "operators/convolution.h"
#include "operators/cuda/cudnn_plan.h"
#include "tests/cuda/executor/cudnn_case.h"

namespace mx::test {
namespace {

class CudnnConvolutions : public WithFakeCudnn {
 protected:
  static NDArray on_gpu(const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    return call(on_host(*find_operator(name)), attrs, inputs)[0];
  }
  /// Returns how many executions of cuDNN a call makes, after comparing its results with the CPU's.
  static int64_t executions_of(const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    const Operator& op = *find_operator(name);
    const int64_t before = fake_cudnn().executions, said = cuda::cudnn_executions();
    const NDArray expected = call(op, attrs, inputs)[0], got = on_gpu(name, attrs, inputs);
    expect_close(expected, got, inputs[0].dtype());
    EXPECT_EQ(cuda::cudnn_executions() - said, fake_cudnn().executions - before);
    return fake_cudnn().executions - before;
  }
};

/// The calls that own kernels compute although cuDNN is wanted.
bool is_for_own_kernels(const std::string& op, const Sample& sample) {
  if (op != "convolution_transpose") return false;
  // No engine adds a bias to a transposed convolution, and f16 and bf16 must not be rounded before it is
  // added.
  if (sample.inputs.size() == 3 && size_of(sample.inputs[0].dtype()) == 2) return true;
  // cuDNN does not take a negative padding at the end of an axis.
  const auto& a = sample.attrs.get<ConvolutionTransposeAttrs>();
  for (int axis = 0; axis < sample.inputs[0].rank() - 2; ++axis)
    if (a.output_padding[axis] > a.padding[axis] + a.stride[axis] - 1) return true;
  return false;
}

TEST_F(CudnnConvolutions, SamplesOfEveryTypeGiveTheResultsOfTheCpu) {
  int64_t biases = fake_cudnn().biases;
  for (const char* name : {"convolution", "convolution_transpose", "convolution_weights"}) {
    const Operator& op = *find_operator(name);
    for (const Sample& sample : samples_of(op))
      for (const DType type : dtypes_of(op)) {
        const Sample typed = as_dtype(op, sample, type);
        SCOPED_TRACE(label(op, typed));
        EXPECT_EQ(is_for_own_kernels(name, typed) ? 0 : 1, executions_of(name, typed.attrs, typed.inputs));
      }
  }
  EXPECT_GT(fake_cudnn().biases, biases);
}

constexpr cuda::CudnnProblem kPointwise{.x = {1, 4, 5, 5},
                                        .weight = {4, 4, 1, 1},
                                        .y = {1, 4, 5, 5},
                                        .stride = {1, 1},
                                        .dilation = {1, 1},
                                        .alignment = {16, 16, 16}};

struct RandomCall {
  const char* name;
  Sample sample;
  bool is_negative = false;  // the padding at the end of an axis
};

class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed) : random_(seed) {}

  RandomCall next() {
    const int64_t axes = from(1, 3), groups = from(1, 3), most = axes == 3 ? 5 : 9;
    const DType type = std::vector<DType>{f32, f64, f16, bf16}[static_cast<size_t>(from(0, 3))];
    Shape x{from(1, 3), groups * from(1, 3)}, w{groups * from(1, 3), x[1] / groups}, y{x[0], w[0]};
    std::vector<int64_t> stride, padding, dilation, output_padding, kernel;
    bool is_negative = false;
    for (int64_t a = 0; a < axes; ++a) {
      const int64_t s = from(1, 3), d = from(1, 3), k = from(1, 3), extent = d * (k - 1) + 1, p = from(0, 2),
                    out = from(1, most / 2);
      // From the size of y, with up to max(s, d) - 1 elements of x that no position reads.
      const int64_t least = (out - 1) * s + extent - 2 * p, more = from(0, std::max(s, d) - 1);
      const int64_t size = least + more;
      if (size < 1) return next();
      is_negative = is_negative || more > p + s - 1;
      x.push_back(size);
      y.push_back(out);
      w.push_back(k);
      kernel.push_back(k);
      stride.push_back(s);
      dilation.push_back(d);
      padding.push_back(p);
      output_padding.push_back(more);
    }
    const auto per_axis = [](const std::vector<int64_t>& numbers) { return PerAxis(numbers); };
    const PerAxis s = per_axis(stride), p = per_axis(padding), d = per_axis(dilation);
    const NDArray bias = array_of({from(0, 1) == 0 ? y[1] : x[1]}, type);
    switch (from(0, 2)) {
      case 0: {
        Sample sample{{array_of(x, type), array_of(w, type)}, ConvolutionAttrs{s, p, d, groups}, ""};
        if (bias.shape()[0] == y[1]) sample.inputs.push_back(bias);
        return {"convolution", sample};
      }
      case 1: {
        Sample sample{{array_of(y, type), array_of(w, type)},
                      ConvolutionTransposeAttrs{s, p, d, groups, per_axis(output_padding)},
                      ""};
        if (bias.shape()[0] == x[1]) sample.inputs.push_back(bias);
        return {"convolution_transpose", sample, is_negative};
      }
      default:
        return {"convolution_weights",
                {{array_of(x, type), array_of(y, type)},
                 ConvolutionWeightsAttrs{per_axis(kernel), s, p, d, groups},
                 ""},
                is_negative};
    }
  }

 private:
  int64_t from(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  /// Numbers in memory that is dense, has the channels last, has gaps, runs backwards or begins anywhere.
  NDArray array_of(const Shape& shape, DType type) {
    const NDArray a = Generator(random_()).normal(0, 1, shape).to(type);
    const int64_t way = from(0, 7);
    if (way == 0) {
      std::vector<int64_t> last, back;
      for (int i = 0; i < a.rank(); ++i)
        if (i != 1) last.push_back(i);
      last.push_back(1);
      if (a.rank() < 3) return a;
      back = {0, a.rank() - 1};
      for (int i = 1; i < a.rank() - 1; ++i) back.push_back(i);
      return a.transpose(last).clone().transpose(back);
    }
    if (way == 1) return laid_out(a, kAllLayouts[static_cast<size_t>(from(0, 3)) % std::size(kAllLayouts)]);
    if (way == 2) {  // dense, and only as aligned as an element
      const NDArray wide = zeros({a.numel() + 1}, type);
      NDArray inner = wide.slice(0, {1, a.numel() + 1}).reshape(shape);
      inner.copy_from(a);
      return inner;
    }
    return a;
  }

  std::mt19937 random_;
};

TEST_F(CudnnConvolutions, RandomCallsGiveTheResultsOfTheCpu) {
  RandomCalls calls(5);
  const int64_t uneven = fake_cudnn().uneven;
  int64_t computed = 0;
  const int count = kThreadSanitizer ? 20 : kSlow ? 60 : 400;
  for (int i = 0; i < count; ++i) {
    const RandomCall next = calls.next();
    SCOPED_TRACE(detail::concat(i, ": ", label(*find_operator(next.name), next.sample)));
    const int64_t executions = executions_of(next.name, next.sample.attrs, next.sample.inputs);
    computed += executions;
    EXPECT_EQ(next.is_negative || is_for_own_kernels(next.name, next.sample) ? 0 : 1, executions);
    if (HasFailure()) return;
  }
  EXPECT_GT(computed, count / 2);
  EXPECT_GT(fake_cudnn().uneven, uneven);
}

TEST_F(CudnnConvolutions, TheResultMayHaveAnyLayout) {
  for (const char* name : {"convolution", "convolution_transpose", "convolution_weights"}) {
    const Operator& op = *find_operator(name);
    for (const Sample& sample : samples_of(op))
      for (const Layout layout : kAllLayouts) {
        if (layout == Layout::broadcast) continue;
        SCOPED_TRACE(label(op, sample));
        const NDArray expected = call(op, sample.attrs, sample.inputs)[0];
        NDArray out = laid_out(zeros_like(expected), layout);
        const int64_t before = fake_cudnn().executions;
        call_into(out, on_host(op), sample.attrs, sample.inputs);
        expect_close(expected, out, f32);
        EXPECT_EQ(before + (is_for_own_kernels(name, sample) ? 0 : 1), fake_cudnn().executions);
      }
  }
}

TEST_F(CudnnConvolutions, ImagesWithTheChannelsLastAreNotCopied) {
  const auto last = [](const NDArray& a) {
    return a.transpose({0, 2, 3, 1}).clone().transpose({0, 3, 1, 2});
  };
  const Operator op = on_host(*find_operator("convolution"));
  const NDArray x = last(numbers({2, 8, 6, 5}, bf16)), w = numbers({16, 8, 3, 3}, bf16);
  NDArray y = last(zeros({2, 16, 4, 3}, bf16));
  const int64_t launches = executor_launches();
  const NDArray inputs[] = {x, w};
  call_into(y, op, ConvolutionAttrs{}, inputs);
  expect_close(convolution(x, w), y, bf16);
  // One for the copy of the weight, and one or two for cuDNN's work.
  EXPECT_EQ(launches + (last_planned_engine().workspace > 0 ? 3 : 2), executor_launches());
}

TEST_F(CudnnConvolutions, APlanIsMadeOncePerProblem) {
  const NDArray x = numbers({3, 5, 11, 13}), w = numbers({7, 5, 2, 3}), b = numbers({7});
  FakeCudnn& fake = fake_cudnn();
  const int64_t plans = fake.plans, executions = fake.executions;
  const auto run = [&] { return content_of(on_gpu("convolution", ConvolutionAttrs{}, {x, w, b})); };
  const Content first = run();
  const int64_t searches = fake.searches, descriptors = fake.descriptors, made = fake.plans;
  EXPECT_GT(made, plans);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first, run());
  EXPECT_EQ(searches, fake.searches);
  EXPECT_EQ(made, fake.plans);
  EXPECT_EQ(executions + 4, fake.executions);
  EXPECT_EQ(descriptors, fake.descriptors) << "an execution leaves descriptors";
}

TEST_F(CudnnConvolutions, ManyProblemsAreNotAllKept) {
  FakeCudnn& fake = fake_cudnn();
  fake.no_engines = true;  // what is remembered is that there is no plan
  const auto ask = [](int64_t n) {
    cuda::CudnnProblem p = kPointwise;
    p.device = 8;
    p.x[0] = p.y[0] = n;
    return cuda::cudnn_plan(p);
  };
  const int64_t before = fake.searches;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(nullptr, ask(1));
  EXPECT_EQ(before + 2, fake.searches);
  for (int64_t n = 2; n < 1030; ++n) EXPECT_EQ(nullptr, ask(n));
  EXPECT_EQ(before + 2 * 1029, fake.searches);
  EXPECT_EQ(nullptr, ask(1));
  EXPECT_EQ(before + 2 * 1030, fake.searches) << "more than 1024 problems are kept";
}

TEST_F(CudnnConvolutions, DepthwiseOnesStayWithOwnKernels) {
  cuda::set_convolution_method(cuda::ConvolutionMethod::automatic);
  const NDArray x = numbers({2, 6, 7, 7});
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{.groups = 6}, {x, numbers({6, 1, 3, 3})}));
  EXPECT_EQ(1, executions_of("convolution", ConvolutionAttrs{.groups = 6}, {x, numbers({12, 1, 3, 3})}));
  EXPECT_EQ(1, executions_of("convolution", ConvolutionAttrs{.groups = 2}, {x, numbers({6, 3, 3, 3})}));
}

TEST_F(CudnnConvolutions, EmptyArraysAreForOwnKernels) {
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, {zeros({0, 2, 5}), numbers({3, 2, 2})}));
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, {zeros({2, 0, 5}), zeros({3, 0, 2})}));
  EXPECT_EQ(0, executions_of("convolution_weights", ConvolutionWeightsAttrs{.kernel = 2},
                             {zeros({0, 2, 5}), zeros({0, 3, 4})}));
}

TEST_F(CudnnConvolutions, WithoutAHandleOwnKernelsCompute) {
  fake_cudnn().no_handles = true;
  // Handles are kept: all that there are must be in use. Another device has none.
  cuda::CudnnProblem elsewhere = kPointwise;
  elsewhere.device = 7;
  EXPECT_EQ(nullptr, cuda::cudnn_plan(elsewhere));
  fake_cudnn().no_handles = false;
  EXPECT_EQ(nullptr, cuda::cudnn_plan(elsewhere)) << "it is not tried again";
}

TEST_F(CudnnConvolutions, WithoutAnEngineOwnKernelsCompute) {
  fake_cudnn().no_engines = true;
  const std::vector<NDArray> inputs = {numbers({2, 3, 9, 4}), numbers({5, 3, 2, 2}), numbers({5})};
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, inputs));
  const int64_t searches = fake_cudnn().searches;
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, inputs));
  EXPECT_EQ(searches, fake_cudnn().searches);
}

TEST_F(CudnnConvolutions, AProblemThatTheLibraryRefusesToExecuteIsNotTriedAgain) {
  const std::vector<NDArray> inputs = {numbers({2, 3, 9, 5}), numbers({5, 3, 2, 2})};
  fake_cudnn().refuse_execution = true;
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, inputs));
  fake_cudnn().refuse_execution = false;
  EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, inputs));
}

TEST_F(CudnnConvolutions, AnExecutionThatFailsIsAnError) {
  fake_cudnn().fail_execution = true;
  const std::vector<NDArray> inputs = {numbers({2, 3, 9, 6}), numbers({5, 3, 2, 2})};
  try {
    on_gpu("convolution", ConvolutionAttrs{}, inputs).wait();
    ADD_FAILURE() << "expected a DeviceError";
  } catch (const DeviceError& error) {
    EXPECT_TRUE(contains(error.what(), "cudnnBackendExecute")) << error.what();
    EXPECT_TRUE(contains(error.what(), "CUDNN_STATUS_EXECUTION_FAILED")) << error.what();
  }
  fake_cudnn().fail_execution = false;
  EXPECT_EQ(1,
            executions_of("convolution", ConvolutionAttrs{}, {numbers({2, 3, 9, 6}), numbers({5, 3, 2, 2})}));
}

// The fake fails if two threads use one handle or one plan at the same time.
TEST_F(CudnnConvolutions, ThreadsMayCallAtTheSameTime) {
  const int64_t before = fake_cudnn().executions, handles = fake_cudnn().handles;
  constexpr int kThreads = 4, kCalls = kSlow ? 5 : 40;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      EngineOptions options;
      options.mode = EngineMode::naive;
      Engine engine(options);
      const EngineScope scope(engine);
      const NDArray x = numbers({2, 4, 10, 10}), w = numbers({6, 4, 3, 3}), expected = convolution(x, w);
      for (int i = 0; i < kCalls; ++i) {
        // The same problem in all threads, and one that no other thread has.
        expect_close(expected, on_gpu("convolution", ConvolutionAttrs{}, {x, w}), f32);
        on_gpu("convolution", ConvolutionAttrs{}, {numbers({1, 2, 5 + t, 5 + i}), ones({3, 2, 2, 2})}).wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(before + 2 * kThreads * kCalls, fake_cudnn().executions);
  EXPECT_LE(fake_cudnn().handles - handles, 1);
}

// What the environment says is read once, so another process shows it.
TEST_F(CudnnConvolutions, MxCudnn0TurnsItOff) {
  if (const char* const value = std::getenv("MX_CUDNN"); value != nullptr) {
    ASSERT_STREQ("0", value);
    EXPECT_EQ(0, executions_of("convolution", ConvolutionAttrs{}, {numbers({2, 3, 9}), numbers({5, 3, 2})}));
    EXPECT_EQ(0, fake_cudnn().handles);
    return;
  }
  EXPECT_EQ(0, std::system("MX_CUDNN=0 exec /proc/$PPID/exe --gtest_brief=1 "
                           "--gtest_filter=CudnnConvolutions.MxCudnn0TurnsItOff"));
}

}  // namespace
}  // namespace mx::test
