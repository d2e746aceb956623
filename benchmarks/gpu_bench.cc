// gpu_bench: operators and training on a GPU. Prints JSON lines with bench "gpu":
//   copy              GB/s of a copy on the device, read and written bytes: the ceiling of the next ones
//   add, exp, sum, .. GB/s of all bytes that the operator has to read and write
//   chain             the same bytes for tanh(x * 2 + b) * x, of one fused kernel (system mx_fused) and of
//   four
//                     operators (mx); the four move more bytes, which do not count
//   matmul_TYPE       TFLOP/s of a product of square matrices
//   conv_TYPE         TFLOP/s of a convolution of ResNet, and of its gradients (_x, _weight); by cuDNN if
//                     there is one, unless MX_CUDNN=0
//   enqueue_add       host time per operation, from the first call until all have been issued and ended, of
//                     a chain of sums of 2x2 arrays; system "bare": copies of 16 bytes on one stream, without
//                     the engine and arrays
//   replay_add        time per operation of a segment of 100 such sums, launched as one graph
//   NET_train         samples/s (tokens/s of gpt2), with the loss read once per block of steps;
//   NET_train_bf16
//                     inside an Autocast scope
//   mlp_replay        samples/s of a step of mlp that was recorded in a segment, launched as one graph
//   NET_memory        MB, the peak of device memory in use during these steps
//   first_step        ms, from the start of main() to the loss of the first step of mlp
// Networks: those of the training benchmark (train/runner.h), resnet50 for images of 224 x 224, and gpt2 with
// 124M parameters. With --quick all sizes are small, to show that it runs. gpu_bench_torch.py has the same
// cases for PyTorch.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"
#include "benchmarks/train/networks.h"
#include "engine/device/registry.h"
#include "examples/support/command_line.h"
#include "executor/autograd/autograd.h"
#include "nn/generation/gpt.h"
#include "nn/losses.h"
#include "operators/fused.h"
#include "operators/operators.h"
#include "optim/optimizers.h"

namespace {

using namespace mx;
using namespace mx::bench;

struct Settings {
  Context device;
  int rounds = 5;
  bool quick = false;
  std::string only;
};

bool wanted(const Settings& s, const std::string& name) {
  return s.only.empty() || name.find(s.only) != std::string::npos;
}

/// Seconds of one call; each sample takes long enough that the wait at its end does not count.
std::vector<double> seconds(const Settings& s, const std::function<void()>& call) {
  const auto measure = [&](int64_t calls) {
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < calls; ++i) call();
    wait_all();
    return static_cast<double>(now_ns() - begin) * 1e-9;
  };
  (void)measure(2);
  const double once = measure(1);
  const int64_t calls =
      s.quick ? 1 : std::clamp<int64_t>(static_cast<int64_t>(0.1 / std::max(once, 1e-7)), 1, 5000);
  std::vector<double> samples;
  for (int round = 0; round < s.rounds; ++round)
    samples.push_back(measure(calls) / static_cast<double>(calls));
  return samples;
}

void report(const Settings& s, const std::string& name, const char* system, const char* unit, double work,
            const std::function<void()>& call) {
  if (!wanted(s, name)) return;
  std::vector<double> rates;
  for (const double each : seconds(s, call)) rates.push_back(work / each);
  print({"gpu", name, system, 1, unit, summarize(rates)});
}

void bandwidth(const Settings& s) {
  const int64_t rows = s.quick ? 8 : 65536, columns = 1024;
  const NoGrad pause;
  for (const DType type : {f32, bf16}) {
    const std::string suffix = std::string("_") + to_string(type);
    const NDArray x = uniform(-2, 2, {rows, columns}).to(type).to(s.device);
    const NDArray y = uniform(-2, 2, {rows, columns}).to(type).to(s.device);
    const NDArray weight = ones({columns}, type, s.device), bias = zeros({columns}, type, s.device);
    wait_all();
    const double bytes = static_cast<double>(x.numel()) * static_cast<double>(size_of(type));
    NDArray out;
    const auto rate = [&](const std::string& name, double arrays, const std::function<NDArray()>& f,
                          const char* system = "mx") {
      report(s, name + suffix, system, "GB/s", arrays * bytes * 1e-9, [&] { out = f(); });
    };
    rate("copy", 2, [&] { return x.clone(); });
    rate("add", 3, [&] { return x + y; });
    rate("relu", 2, [&] { return relu(x); });
    rate("exp", 2, [&] { return exp(x); });
    rate("tanh", 2, [&] { return tanh(x); });
    rate("sum", 1, [&] { return sum(x); });
    rate("sum_rows", 1, [&] { return sum(x, {1}); });
    rate("softmax", 2, [&] { return softmax(x); });
    rate("layer_norm", 2, [&] { return layer_norm(x, {columns}, weight, bias); });
    FusedBuilder b({type, type});
    const auto inner = b.op("add", {b.op("mul", {b.input(0), b.number(2, type)}), b.input(1)});
    const Fused chain = b.build(b.op("mul", {b.op("tanh", {inner}), b.input(0)}));
    const NDArray operands[] = {x, y};
    rate(
        "chain", 3, [&] { return chain(operands); }, "mx_fused");
    rate("chain", 3, [&] { return chain.unfused(operands); });
  }
}

void products(const Settings& s) {
  const int64_t n = s.quick ? 32 : 8192;
  const NoGrad pause;
  for (const char* name : {"f32", "tf32", "bf16", "f16"}) {
    const std::string text = name;
    const DType type = text == "bf16" ? bf16 : text == "f16" ? f16 : f32;
    const NDArray a = normal(0, 1, {n, n}).to(type).to(s.device),
                  b = normal(0, 1, {n, n}).to(type).to(s.device);
    const bool before = tf32();
    set_tf32(text == "tf32");
    NDArray out;
    report(s, "matmul_" + text, "mx", "TFLOP/s",
           2e-12 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
           [&] { out = matmul(a, b); });
    set_tf32(before);
  }
}

void convolutions(const Settings& s) {
  const int64_t images = s.quick ? 1 : 64, channels = s.quick ? 8 : 128, size = s.quick ? 6 : 28;
  const NoGrad pause;
  for (const std::string text : {"f32", "tf32", "bf16", "f16"}) {
    const DType type = text == "bf16" ? bf16 : text == "f16" ? f16 : f32;
    const NDArray x = normal(0, 1, {images, channels, size, size}).to(type).to(s.device),
                  weight = normal(0, 1, {channels, channels, 3, 3}).to(type).to(s.device);
    const double work = 2e-12 * static_cast<double>(x.numel()) * static_cast<double>(channels) * 9;
    const bool before = tf32();
    set_tf32(text == "tf32");
    NDArray out;
    report(s, "conv_" + text, "mx", "TFLOP/s", work, [&] { out = convolution(x, weight, {.padding = 1}); });
    report(s, "conv_" + text + "_x", "mx", "TFLOP/s", work,
           [&] { out = convolution_transpose(x, weight, {.padding = 1}); });
    report(s, "conv_" + text + "_weight", "mx", "TFLOP/s", work,
           [&] { out = convolution_weights(x, x, {.kernel = 3, .padding = 1}); });
    set_tf32(before);
  }
}

void launches(const Settings& s) {
  const int64_t count = s.quick ? 20 : 20'000;
  const NoGrad pause;
  NDArray x = zeros({2, 2}, f32, s.device);
  const NDArray one = ones({2, 2}, f32, s.device);
  wait_all();
  const auto print_ns = [&](const std::string& name, const char* system, const std::function<double()>& ns) {
    if (!wanted(s, name)) return;
    std::vector<double> samples;
    (void)ns();
    for (int round = 0; round < s.rounds; ++round) samples.push_back(ns());
    print({"gpu", name, system, 1, "ns/op", summarize(samples)});
  };
  const auto timed = [](int64_t operations, const std::function<void()>& run) {
    const int64_t begin = now_ns();
    run();
    return static_cast<double>(now_ns() - begin) / static_cast<double>(operations);
  };
  print_ns("enqueue_add", "mx", [&] {
    return timed(count, [&] {
      for (int64_t i = 0; i < count; ++i) x += one;
      wait_all();
    });
  });
  Device& device = get_device(s.device);
  const std::unique_ptr<Stream> stream = device.new_stream();
  void* const memory = device.allocate(64);
  print_ns("enqueue_add", "bare", [&] {
    return timed(count, [&] {
      auto* const bytes = static_cast<char*>(memory);
      for (int64_t i = 0; i < count; ++i)
        device.copy_async(bytes + 32, s.device, bytes, s.device, 16, *stream);
      stream->synchronize();
    });
  });
  device.free(memory);
  constexpr int kOfSegment = 100;
  Segment segment = current_engine().record([&] {
    for (int i = 0; i < kOfSegment; ++i) x += one;
  });
  for (int i = 0; i < 3; ++i) segment.replay();  // runs without a graph, makes the graph, and launches it
  print_ns("replay_add", "mx", [&] {
    const int64_t replays = std::max<int64_t>(1, count / kOfSegment);
    return timed(replays * kOfSegment, [&] {
      for (int64_t i = 0; i < replays; ++i) segment.replay();
      wait_all();
    });
  });
}

/// A network, its optimiser and its batches on the device.
class Training {
 public:
  Training(const Settings& s, const std::string& name, int64_t batch, std::optional<DType> cast)
      : cast_(cast) {
    if (name == "gpt2") {
      nn::GPTOptions options{.resid_pdrop = 0, .embd_pdrop = 0, .attn_pdrop = 0};
      if (s.quick) options = {.vocab_size = 50, .n_positions = 8, .n_embd = 16, .n_layer = 1, .n_head = 2};
      length_ = options.n_positions;
      net_ = nn::Sequential(nn::GPT(options));
      input_ = randint(0, options.vocab_size, {batch, length_}).to(s.device);
      labels_ = randint(0, options.vocab_size, {batch, length_}).to(s.device);
    } else {
      net_ = make_network(name);
      input_ = make_input(name, batch).to(s.device);
      labels_ = randint(0, 10, {batch}).to(s.device);
    }
    net_.to(s.device);
    optimizer_.emplace(net_.parameters(), optim::SGDOptions{.lr = 0.01});
    wait_all();
  }
  NDArray step() {
    optimizer_->zero_grad();
    NDArray loss;
    {
      std::optional<Autocast> scope;
      if (cast_.has_value()) scope.emplace(*cast_);
      NDArray logits = net_(input_);
      if (length_ > 1) logits = logits.reshape({-1, logits.shape()[2]});
      loss = nn::cross_entropy(logits, labels_.reshape({-1}));
    }
    loss.backward();
    optimizer_->step();
    return loss;
  }
  double per_step() const { return static_cast<double>(labels_.numel()); }

 private:
  std::optional<DType> cast_;
  int64_t length_ = 1;
  nn::Sequential net_;
  std::optional<optim::SGD> optimizer_;
  NDArray input_, labels_;
};

void training(const Settings& s) {
  struct Net {
    const char* name;
    int64_t batch;
  };
  constexpr Net kNets[] = {{"mlp", 64},   {"lenet", 256},      {"resnet18", 256}, {"resnet50", 128},
                           {"lstm", 128}, {"transformer", 64}, {"gpt2", 8}};
  Device& device = get_device(s.device);
  if (wanted(s, "mlp_replay")) {
    Training job(s, "mlp", s.quick ? 2 : 64, std::nullopt);
    (void)job.step().item<float>();  // makes the gradients, which the segment then updates
    Segment segment = current_engine().record([&] { (void)job.step(); });
    for (int i = 0; i < 3; ++i) segment.replay();  // runs without a graph, makes the graph, and launches it
    report(s, "mlp_replay", "mx", "samples/s", job.per_step(), [&] { segment.replay(); });
  }
  for (const Net& net : kNets) {
    for (const bool lower : {false, true}) {
      const std::string name = std::string(net.name) + "_train" + (lower ? "_bf16" : "");
      if (!wanted(s, name)) continue;
      // The slow ones are left out of a quick run: it shows that the rest works.
      if (s.quick && (name.starts_with("resnet") || name.starts_with("lenet"))) continue;
      Training job(s, net.name, s.quick ? 2 : net.batch, lower ? std::optional(bf16) : std::nullopt);
      device.reset_peak_memory();
      report(s, name, "mx", std::string(net.name) == "gpt2" ? "tokens/s" : "samples/s", job.per_step(),
             [&] { (void)job.step(); });
      (void)job.step().item<float>();
      const double peak = static_cast<double>(device.memory_stats().peak_in_use_bytes) * 1e-6;
      print({"gpu", std::string(net.name) + "_memory" + (lower ? "_bf16" : ""), "mx", 1, "MB",
             summarize({peak})});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t begin = now_ns();
  Settings settings;
  int number = 0;
  mx::examples::CommandLine line("Operators and training on a GPU; JSON lines on stdout");
  line.option("--gpu", &number, "the number of the GPU");
  line.option("--rounds", &settings.rounds, "measurements of each; the median is printed").positive();
  line.option("--case", &settings.only, "only cases whose names contain this text");
  line.flag("--quick", settings.quick, "small sizes, to show that it runs");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (number >= num_gpus() || number < 0) {
    note("gpu_bench: expected a GPU with the number " + std::to_string(number) + ", got a machine with " +
         std::to_string(num_gpus()) + "; nothing is measured");
    return 0;
  }
  if (settings.quick) settings.rounds = std::min(settings.rounds, 2);
  settings.device = gpu(number);
  return mx::examples::run_program("gpu_bench", [&] {
    manual_seed(1);
    if (wanted(settings, "first_step")) {
      Training first(settings, "mlp", settings.quick ? 2 : 64, std::nullopt);
      (void)first.step().item<float>();
      print({"gpu", "first_step", "mx", 1, "ms", summarize({static_cast<double>(now_ns() - begin) * 1e-6})});
    }
    launches(settings);
    bandwidth(settings);
    products(settings);
    convolutions(settings);
    training(settings);
  });
}
