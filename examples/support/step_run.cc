#include "examples/support/step_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "examples/support/writable.h"

namespace mx::examples {

void StepOptions::add_to(CommandLine& line) {
  line.option("--steps", &steps, "of training").within(1, 10000000);
  line.option("--seed", &seed, "of everything that is random").at_least(0);
  line.option("--save", &save, "checkpoint, written after every few steps");
  line.flag("--resume", resume, "go on from the checkpoint, if there is one");
}

StepRun::StepRun(const StepOptions& options, const std::string& other_options) : options_(options) {
  require_checkpoint(options_.save, options_.resume);
  checkpoint_.add_random().add("step", done_);
  checkpoint_.set("options",
                  detail::concat("steps=", options_.steps, " seed=", options_.seed, ' ', other_options));
}

void StepRun::train(const std::function<StepResult(int64_t step)>& step) {
  if (options_.resume && checkpoint_.load_if_exists(options_.save))
    std::fprintf(stderr, "resumed after step %lld\n", static_cast<long long>(done_));
  const int64_t report = std::clamp<int64_t>(options_.steps / 4, 1, 200);
  auto start = std::chrono::steady_clock::now();
  NDArray total = zeros({});
  int64_t steps = 0, tokens = 0;  // since the last report
  while (done_ < options_.steps) {
    const StepResult result = step(++done_);
    const NDArray loss = result.loss.detach();
    total = total + loss;
    tokens += result.tokens;
    ++steps;
    memory_.step(loss);
    if (done_ % report != 0 && done_ != options_.steps) continue;
    const double mean_loss = total.item<float>() / static_cast<double>(steps);  // waits
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("step %5lld  loss %.4f  %.0f tokens/s\n", static_cast<long long>(done_), mean_loss,
                static_cast<double>(tokens) / taken.count());
    std::fflush(stdout);
    MX_CHECK(std::isfinite(mean_loss), NumericError, "[train] expected finite losses, got ", mean_loss,
             " up to step ", done_, "; try a smaller --rate");
    if (!options_.save.empty()) checkpoint_.save(options_.save);
    total = zeros({});
    steps = tokens = 0;
    start = std::chrono::steady_clock::now();
  }
  if (const std::string memory = memory_.text(); !memory.empty())
    std::fprintf(stderr, "%s\n", memory.c_str());
}

}  // namespace mx::examples
