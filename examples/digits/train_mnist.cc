// The main job: a network of three layers learns to read handwritten digits.
//
// Loading, augmentation, the forward pass, the backward pass and the update are operations of the engine. The
// loop only pushes them and reads the loss every 50 batches. Results depend only on the options and the seed:
// not on the number of threads, not on whether the parts of a batch are computed on one device, on several,
// or by several processes, and not on how often training was interrupted.
//
// Several processes, each of which computes one part of every batch and writes the same file as one process
// with --parts 4:   mxrun -n 4 train_mnist
#include <mx/mx.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/place.h"
#include "comm/world.h"
#include "examples/digits/progress.h"
#include "examples/support/command_line.h"
#include "examples/support/devices.h"
#include "examples/support/writable.h"

namespace {

using namespace mx;

struct Options {
  std::string data = "examples/data/mnist";
  std::string device = "cpu";
  std::string save = "mnist.safetensors";
  std::string curve = "mnist_loss.svg";
  std::string trace;
  std::string kvstore = "auto";
  int64_t epochs = 30;
  int64_t batch = 64;
  int64_t parts = 0;
  int64_t seed = 1;
  double rate = 0.05;
  bool resume = false;
  bool shard_optimizer = false;
};

struct Net : nn::Module {
  nn::Linear fc1, fc2, fc3;
  Net() : fc1{784, 128}, fc2{128, 64}, fc3{64, 10} {
    add("fc1", fc1);
    add("fc2", fc2);
    add("fc3", fc3);
  }
  NDArray forward(const NDArray& x) { return fc3(relu(fc2(relu(fc1(x))))); }
};

// Small random changes, after which an image still shows the same digit.
data::Transform augmentation() {
  return data::compose({data::random_rotate(10), data::random_scale(0.9, 1.1), data::random_shift(1.5),
                        data::normalise({0.1307}, {0.3081}), data::reshape({784})});
}
data::Transform preparation() {
  return data::compose({data::normalise({0.1307}, {0.3081}), data::reshape({784})});
}

double test_accuracy(Net& net, const data::DatasetHandle& digits, Context device) {
  const NoGrad pause;
  data::Loader loader(digits, {.batch_size = 500, .context = device, .transform = preparation()});
  metric::Accuracy accuracy;
  for (auto& [images, labels] : loader) accuracy.update(net(images), labels);
  return accuracy.value();
}

// Returns the store through which gradients are added up; null if there is one device and one process.
std::shared_ptr<KVStore> make_store(const Options& options, size_t devices) {
  if (options.kvstore != "auto") return KVStore::create(options.kvstore);
  const comm::Place& place = comm::place();
  if (place.servers > 0) return KVStore::create("dist_sync");  // a server stays in this call
  if (place.size > 1) return KVStore::create("dist_allreduce");
  return devices > 1 ? KVStore::create("device") : nullptr;
}

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        devices_(examples::parse_devices(options.device)),
        store_(make_store(options, devices_.size())),
        rank_(store_ ? store_->rank() : 0),
        processes_(store_ ? store_->size() : 1),
        parts_(options.parts > 0 ? options.parts : processes_ * static_cast<int64_t>(devices_.size())) {
    MX_CHECK(devices_.size() == 1 || processes_ == 1, InvalidArgument,
             "[--device] expected one device for each of the ", processes_, " processes, got ",
             devices_.size());
    const auto places = processes_ * static_cast<int64_t>(devices_.size());
    MX_CHECK(places == 1 || parts_ == places, InvalidArgument, "[--parts] expected one part for each of the ",
             places, processes_ > 1 ? " processes, got " : " devices, got ", parts_);
    MX_CHECK(parts_ <= options.batch, InvalidArgument, "[--parts] expected at most ", options.batch,
             ", an image in each, got ", parts_);
    if (rank_ == 0) {
      examples::require_writable(options.save);
      examples::require_writable(options.curve);
    }
    // A trace that is written to a pipe or a device makes no new file.
    if (!options.trace.empty() && !std::filesystem::is_other(options.trace))
      examples::require_writable(options.trace);
    manual_seed(static_cast<uint64_t>(options.seed));
    const data::DatasetHandle digits = data::mnist(options.data, data::Split::train, {.shape = {28, 28}});
    samples_ = digits->size();
    loader_.emplace(digits, data::LoaderOptions{.batch_size = options.batch,
                                                .shuffle = true,
                                                .drop_last = true,
                                                .seed = options.seed,
                                                .part = rank_,
                                                .parts = processes_,
                                                .context = devices_.size() == 1 ? devices_[0] : cpu(),
                                                .transform = augmentation()});
    Net net;
    nets_ = nn::replicate(net, devices_);
    trainer_.emplace(nn::parameters_of(nets_), optim::SGDOptions{.lr = options.rate, .momentum = 0.9}, store_,
                     nn::TrainerOptions{.shard_optimizer = options.shard_optimizer,
                                        .update_on_store = store_ && store_->type() == "dist_async"});
    const int64_t steps = options.epochs * loader_->batches();
    schedule_.emplace(trainer_->optimizer(), optim::CosineLROptions{.steps = steps, .warmup = steps / 20});
    checkpoint_.add("model", model_).add("optimizer", *trainer_).add("schedule", *schedule_);
    checkpoint_.add("epoch", epoch_).add("losses", losses_).set("options", signature());
  }

  void run() {
    if (options_.resume && checkpoint_exists()) resume();
    while (epoch_ < options_.epochs) {
      train_epoch();
      ++epoch_;
      save();
    }
    if (rank_ != 0) return;
    write_curve();
    const data::DatasetHandle digits = data::mnist(options_.data, data::Split::test, {.shape = {28, 28}});
    std::printf("model: %s, loss curve: %s\n", options_.save.c_str(), options_.curve.c_str());
    std::printf("test accuracy: %.4f\n", test_accuracy(nets_[0], digits, devices_[0]));
  }

 private:
  // Returns true if there is a checkpoint. All processes read it, so it must be there for all of them.
  bool checkpoint_exists() {
    const bool here = std::filesystem::exists(options_.save);
    if (processes_ == 1) return here;
    NDArray found = array({here ? 1.f : 0.f});
    store_->allreduce({"checkpoint"}, {found}, {found});
    const auto count = static_cast<int>(found.item<float>());
    MX_CHECK(count == 0 || count == processes_, InvalidArgument, "[--resume] expected ", options_.save,
             " for all ", processes_, " processes, got it for ", count,
             "; it must be in a folder that all hosts share");
    return count > 0;
  }

  // Runs one step and returns this process's share of the loss of the batch, which is the mean over the
  // samples of all processes. Each part is computed on its device. If there is one device, it computes all
  // parts, and their gradients add up in the same order.
  NDArray step(const NDArray& images, const NDArray& labels, metric::Accuracy& accuracy) {
    trainer_->zero_grad();
    std::vector<Context> places = devices_;
    places.resize(static_cast<size_t>(parts_ / processes_), devices_[0]);
    const auto x = nn::split_batch(images, places), t = nn::split_batch(labels, places);
    NDArray loss;
    for (size_t k = 0; k < places.size(); ++k) {
      const NDArray logits = nets_[k % nets_.size()](x[k]);
      const NDArray part =
          nn::cross_entropy(logits, t[k], {.reduction = "sum"}) / static_cast<float>(options_.batch);
      part.backward();
      accuracy.update(logits, t[k]);
      const NDArray here = part.detach().to(devices_[0]);
      loss = k == 0 ? here : loss + here;
    }
    trainer_->step();
    schedule_->step();
    return loss;
  }

  void train_epoch() {
    const int64_t batches = loader_->batches();
    examples::Progress progress(epoch_ + 1, options_.epochs, batches, options_.batch);
    metric::Accuracy accuracy;  // of this process's parts
    std::vector<NDArray> recent;
    double total = 0;
    int64_t done = 0;
    for (auto& [images, labels] : *loader_) {
      trace(done, batches);
      recent.push_back(step(images, labels, accuracy).to(cpu()));
      if (++done % kLook != 0 && done != batches) continue;
      const float sum = sum_of(recent);
      total += sum;
      losses_.push_back(expect_finite(sum / static_cast<double>(recent.size())));
      recent.clear();
      if (rank_ == 0) progress.show(done, losses_.back(), accuracy.value());
    }
    trace(done, batches);
    for (const NDArray& parameter : nets_[0].parameters())
      expect_finite(sum(abs(parameter.detach())).item<float>());
    if (rank_ == 0) progress.epoch_done(total / static_cast<double>(batches), accuracy.value());
  }

  // Returns the sum of the losses of several steps. The shares of the processes are added up first.
  float sum_of(const std::vector<NDArray>& losses) {
    NDArray all = stack(losses);
    if (processes_ > 1) store_->allreduce({"loss"}, {all}, {all});
    float sum = 0;
    for (const float loss : all.to_vector<float>()) sum += loss;
    return sum;
  }

  double expect_finite(double value) const {
    if (std::isfinite(value)) return value;
    throw NumericError(detail::concat("[train_mnist] expected finite losses and weights, got ", value,
                                      " in epoch ", epoch_ + 1, "; try a smaller --rate"));
  }

  // Traces kSteps steps of the first epoch of this run: from step kFirst on, or the last ones if the epoch is
  // shorter. Called before each step and after the last one. Does not wait before the first traced step, so
  // the trace shows how later batches are loaded meanwhile.
  void trace(int64_t done, int64_t batches) {
    constexpr int64_t kFirst = 10, kSteps = 8;
    const int64_t first = std::clamp(batches - kSteps, int64_t{0}, kFirst);
    if (traced_ || options_.trace.empty() || rank_ != 0) return;
    if (done == first) Engine::get().profiler_start();
    if (done != std::min(first + kSteps, batches)) return;
    wait_all();
    Engine::get().profiler_stop();
    Engine::get().write_trace(options_.trace);
    traced_ = true;
  }

  void write_curve() const {
    training::History history;
    const int64_t batches = loader_->batches();
    int64_t step = 0;
    for (const double loss : losses_) {
      const int64_t in_epoch = step % batches;
      step += std::min(kLook, batches - in_epoch);
      history.add("training loss", step, loss);
    }
    history.write_svg(options_.curve);
  }

  // The model as a part of the checkpoint: a loaded one is copied to all replicas and processes.
  struct Model {
    Training* run;
    NamedArrays state_dict() const { return run->nets_[0].state_dict(); }
    void load_state_dict(const NamedArrays& state) const {
      run->nets_[0].load_state_dict(state);
      run->trainer_->synchronise();
    }
  };

  void save() {
    const NamedArrays state = checkpoint_.state();  // each process may have a part of it
    if (rank_ == 0) checkpoint_.save(options_.save, state);
  }

  void resume() {
    checkpoint_.load(options_.save);
    check_progress();
    data::LoaderState state = loader_->state();
    state.epoch = epoch_;
    loader_->restore(state);
    if (rank_ == 0) std::printf("resumed after epoch %lld\n", static_cast<long long>(epoch_));
  }

  // Checks the values, because a valid file may still have content that no run with these options has
  // written.
  void check_progress() const {
    MX_CHECK(epoch_ >= 1 && epoch_ <= options_.epochs, InvalidArgument,
             "[checkpoint] expected an epoch from 1 to ", options_.epochs, " in ", options_.save, ", got ",
             epoch_);
    const int64_t batches = loader_->batches(), steps = epoch_ * batches;
    MX_CHECK(schedule_->steps_done() == steps, InvalidArgument, "[checkpoint] expected a schedule at step ",
             steps, " after epoch ", epoch_, " in ", options_.save, ", got ", schedule_->steps_done());
    const auto looks = static_cast<size_t>(epoch_ * ((batches + kLook - 1) / kLook));
    MX_CHECK(losses_.size() == looks, InvalidArgument, "[checkpoint] expected ", looks, " losses in ",
             options_.save, ", got ", losses_.size());
    for (const double loss : losses_)
      MX_CHECK(std::isfinite(loss), InvalidArgument, "[checkpoint] expected finite losses in ", options_.save,
               ", got ", loss);
    for (const auto& [name, parameter] : nets_[0].named_parameters())
      MX_CHECK(std::isfinite(sum(abs(parameter.detach())).item<float>()), InvalidArgument,
               "[checkpoint] expected finite weights in ", options_.save, ", got NaN or infinity in ", name);
  }

  // Returns the settings that must be equal in an interrupted run and the run that resumes it.
  std::string signature() const {
    return detail::concat("epochs=", options_.epochs, " batch=", options_.batch, " seed=", options_.seed,
                          " rate=", options_.rate, " parts=", parts_, " samples=", samples_);
  }

  static constexpr int64_t kLook = 50;  // the loss is read every kLook batches

  const Options options_;
  const std::vector<Context> devices_;
  const std::shared_ptr<KVStore> store_;
  const int rank_, processes_;
  const int64_t parts_;  // of each batch
  int64_t samples_ = 0;
  std::optional<data::Loader> loader_;
  std::vector<Net> nets_;
  std::optional<nn::Trainer> trainer_;
  std::optional<optim::CosineLR> schedule_;
  int64_t epoch_ = 0;
  std::vector<double> losses_;
  Model model_{this};
  training::Checkpoint checkpoint_;
  bool traced_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  mx::examples::CommandLine line("A network of three layers learns to read handwritten digits");
  line.option("--data", &options.data, "folder with the MNIST files");
  line.option("--device", &options.device, "cpu, virt:N or gpu:N; several with commas share each batch");
  line.option("--epochs", &options.epochs, "passes over the training images").within(1, 10000);
  line.option("--batch", &options.batch, "images in a step").within(1, 20000);
  line.option("--parts", &options.parts, "of each batch, added up in order; 0: one for each device")
      .at_least(0);
  line.option("--kvstore", &options.kvstore, "type of store; auto: by how the program was started");
  line.option("--rate", &options.rate, "highest learning rate").positive();
  line.option("--seed", &options.seed, "of everything that is random").at_least(0);
  line.option("--save", &options.save, "checkpoint, written after each epoch");
  line.flag("--resume", options.resume, "go on from the checkpoint, if there is one");
  line.flag("--shard-optimizer", options.shard_optimizer,
            "several processes: each keeps a part of the optimiser's state");
  line.option("--curve", &options.curve, "loss curve, an SVG picture");
  line.option("--trace", &options.trace, "trace of a few steps, for Perfetto");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("train_mnist", [&] { Training(options).run(); });
}
