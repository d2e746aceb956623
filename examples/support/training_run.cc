#include "examples/support/training_run.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "examples/support/writable.h"

namespace mx::examples {
namespace {

constexpr int64_t kLookEvery = 50;  // steps between two reads of the loss

}  // namespace

void RunOptions::add_to(CommandLine& line) {
  line.option("--data", &data, "folder with the MNIST files");
  line.option("--epochs", &epochs, "passes over the training images").within(1, 10000);
  line.option("--batch", &batch, "images in a step").within(1, 20000);
  line.option("--rate", &rate, "highest learning rate").positive();
  line.option("--seed", &seed, "of everything that is random").at_least(0);
  line.option("--save", &save, "checkpoint, written after each epoch");
  line.flag("--resume", resume, "go on from the checkpoint, if there is one");
  line.option("--events", &events, "folder for the curves, which TensorBoard shows");
}

TrainingRun::TrainingRun(const RunOptions& options, data::Loader& loader, const std::string& other_options)
    : options_(options), loader_(loader) {
  require_checkpoint(options_.save, options_.resume);
  if (!options_.events.empty()) events_.emplace(options_.events);
  checkpoint_.add("loader", loader_).add_random().add("epoch", epoch_);
  checkpoint_.set("options", detail::concat("epochs=", options_.epochs, " batch=", options_.batch,
                                            " seed=", options_.seed, " rate=", options_.rate,
                                            other_options.empty() ? "" : " ", other_options));
}

void TrainingRun::train(const Step& step) {
  if (options_.resume && checkpoint_.load_if_exists(options_.save))
    std::fprintf(stderr, "resumed after epoch %lld\n", static_cast<long long>(epoch_));
  const auto start = std::chrono::steady_clock::now();
  {
    training::ProgressBar bar(steps() - epoch_ * loader_.batches());
    while (epoch_ < options_.epochs) {
      const double loss = train_epoch(step, bar);
      ++epoch_;
      if (!std::isfinite(loss))
        throw NumericError(detail::concat("[train] expected finite losses, got ", loss, " in epoch ", epoch_,
                                          "; try a smaller --rate"));
      if (events_) events_->add_scalar("loss", loss, epoch_ * loader_.batches());
      if (!options_.save.empty()) checkpoint_.save(options_.save);
    }
  }
  wait_all();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::fprintf(stderr, "%.0f images/s, %.1f s",
               static_cast<double>(memory_.steps() * options_.batch) / seconds, seconds);
  const std::string memory = memory_.text();
  std::fprintf(stderr, "%s%s\n", memory.empty() ? "" : ", ", memory.c_str());
}

/// Returns the mean of the losses.
double TrainingRun::train_epoch(const Step& step, training::ProgressBar& bar) {
  metric::MeanLoss mean;
  for (auto& [images, labels] : loader_) {
    mean.update(step(images, labels).detach(), images.size(0));
    memory_.step();
    if (memory_.steps() % kLookEvery == 0) {
      bar.note("epoch", static_cast<double>(epoch_ + 1));
      bar.note("loss", mean.value());  // waits
    }
    bar.advance();
  }
  return mean.value();
}

}  // namespace mx::examples
