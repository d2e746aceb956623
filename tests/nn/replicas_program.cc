// A process of a job that trains several replicas on virtual devices: replicas_program TYPE REPLICAS [MODE]
//   (none)   after each step, the parameters have the bits of one process that adds the gradients of the
//   parts
//            of each process, and then those of the processes
//   fewer    rank 1 has one replica; training goes on
//   choice   rank 1 has another learning rate
//   model    rank 1 has another model
//   killed   rank 1 dies between two steps
//   norm     SyncBatchNorm has the outputs, gradients and statistics of BatchNorm on the joined batch
// A process that meets an error prints it and ends with 3.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"

namespace {

using namespace mx;

constexpr int64_t kRows = 24, kSteps = 4;

NDArray numbers(const Shape& shape, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(state >> 40) / 8388608.f - 1.f;
  }
  return array(values).reshape(shape);
}

nn::Sequential make_net(int64_t hidden, uint64_t seed) {
  nn::Sequential net(nn::Linear(6, hidden), nn::Tanh(), nn::Linear(hidden, 3));
  const NoGrad pause;
  for (const NamedParameter& p : net.parameters()) p.copy_from(numbers(p.shape(), seed++));
  return net;
}

/// The loss of one part of the batch of a step.
NDArray part_loss(nn::Sequential& net, int64_t step, size_t part, size_t parts, Context device) {
  const std::vector<Context> here(parts, cpu());
  std::vector<int64_t> labels;
  for (int64_t r = 0; r < kRows; ++r) labels.push_back((r * 7 + step) % 3);
  const NDArray x = nn::split_batch(numbers({kRows, 6}, 50 + static_cast<uint64_t>(step)), here)[part];
  const NDArray t = nn::split_batch(array(labels), here)[part];
  return nn::cross_entropy(net(x.to(device)), t.to(device), {.reduction = "sum"}) / static_cast<float>(kRows);
}

/// One process: the gradients of the parts of each process are added, and then those of the processes.
class Reference {
 public:
  explicit Reference(std::vector<int> counts)
      : counts_(std::move(counts)), net_(make_net(33, 1)), optimizer_(net_.parameters(), options()) {
    for (const int count : counts_) parts_ += static_cast<size_t>(count);
  }
  static optim::SGDOptions options() { return {.lr = 0.3, .momentum = 0.9}; }
  size_t parts() const { return parts_; }
  Parameters parameters() const { return net_.parameters(); }

  void step(int64_t number) {
    const Parameters all = net_.parameters();
    std::vector<NDArray> sums(all.size());
    size_t part = 0;
    for (const int count : counts_) {
      std::vector<NDArray> own(all.size());
      for (int k = 0; k < count; ++k, ++part) {
        for (const NamedParameter& p : all) p.set_grad({});
        part_loss(net_, number, part, parts_, cpu()).backward();
        for (size_t i = 0; i < all.size(); ++i)
          own[i] = k == 0 ? all[i].grad().detach().clone() : own[i] + all[i].grad().detach();
      }
      for (size_t i = 0; i < all.size(); ++i) sums[i] = sums[i].defined() ? sums[i] + own[i] : own[i];
    }
    for (size_t i = 0; i < all.size(); ++i) all[i].set_grad(sums[i]);
    optimizer_.step();
  }

 private:
  std::vector<int> counts_;
  size_t parts_ = 0;
  nn::Sequential net_;
  optim::SGD optimizer_;
};

/// Throws if an element of `got` is not near that of `expected`.
void check_near(const NDArray& expected, const NDArray& got, const std::string& what) {
  const float scale = max(abs(expected)).item<float>(), distance = max(abs(expected - got)).item<float>();
  if (!(distance <= 1e-5f * (scale + 1))) throw Error(what + " differs");
}

/// Rank r has r + 2 rows of the batch.
void run_norm(const std::shared_ptr<KVStore>& kv) {
  int64_t begin = 0, end = 0, rows = 0;
  for (int r = 0; r < kv->size(); ++r) {
    if (r == kv->rank()) begin = rows;
    rows += r + 2;
    if (r == kv->rank()) end = rows;
  }
  nn::SyncBatchNorm sync(3, {.store = kv});
  nn::BatchNorm2d joined(3);
  for (int64_t step = 0; step < kSteps; ++step) {
    const NDArray all = (numbers({rows, 3, 4, 4}, 90 + static_cast<uint64_t>(step)) + 2.f).requires_grad_();
    const NDArray own = all.detach().slice(0, Slice{begin, end}).clone().requires_grad_();
    sync.zero_grad();
    joined.zero_grad();
    const NDArray y = sync(own), expected = joined(all);
    sum(y * y * y).backward();
    sum(expected * expected * expected).backward();
    check_near(expected.detach().slice(0, Slice{begin, end}), y.detach(), "the output");
    check_near(all.grad().slice(0, Slice{begin, end}), own.grad(), "the gradient");
    const NDArray sums = nn::all_reduce(sync.weight.grad(), kv, "weight");
    check_near(joined.weight.grad(), sums, "the gradient of the weight");
  }
  check_near(joined.running_mean, sync.running_mean, "the running mean");
  check_near(joined.running_var, sync.running_var, "the running variance");
}

void run(const std::string& type, int replicas, const std::string& mode) {
  const std::shared_ptr<KVStore> kv = KVStore::create(type);
  if (mode == "norm") return run_norm(kv);
  const int rank = kv->rank();
  std::vector<int> counts;
  for (int r = 0; r < kv->size(); ++r) counts.push_back(mode == "fewer" && r == 1 ? 1 : replicas);
  size_t first_part = 0;
  for (int r = 0; r < rank; ++r) first_part += static_cast<size_t>(counts[static_cast<size_t>(r)]);

  const bool wrong = rank == 1;
  // Only rank 0 has the parameters of the reference; the trainer copies them to all.
  nn::Sequential net = make_net(mode == "model" && wrong ? 34 : 33, rank == 0 ? 1 : 77);
  std::vector<Context> devices;
  for (int k = 0; k < counts[static_cast<size_t>(rank)]; ++k) devices.push_back(virt(k));
  std::vector<nn::Sequential> nets = nn::replicate(net, devices);
  optim::SGDOptions options = Reference::options();
  if (mode == "choice" && wrong) options.lr = 0.1;
  nn::Trainer trainer(nn::parameters_of(nets), options, kv, {.bucket_bytes = 600, .check_every = 2});

  Reference reference(counts);
  for (int64_t step = 0; step < kSteps; ++step) {
    if (mode == "killed" && wrong && step == 2) kill(getpid(), SIGKILL);
    trainer.zero_grad();
    for (size_t k = 0; k < nets.size(); ++k)
      part_loss(nets[k], step, first_part + k, reference.parts(), devices[k]).backward();
    trainer.step();
    reference.step(step);
    const Parameters expected = reference.parameters();
    for (const nn::Sequential& replica : nets) {
      const Parameters got = replica.parameters();
      for (size_t i = 0; i < got.size(); ++i)
        if (got[i].detach().to(cpu()).to_vector<float>() != expected[i].detach().to_vector<float>())
          throw Error("parameter " + got[i].name + " differs after step " + std::to_string(step));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argv[1], std::stoi(argv[2]), argc > 3 ? argv[3] : "");
    std::printf("has ended\n");
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
