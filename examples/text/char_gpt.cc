// A small GPT learns to write like Shakespeare, character by character, and then writes some text.
//
// 90% of the text are for training, the rest for validation. Each step takes a batch of random pieces of the
// training text; the model predicts every next character of each piece. AdamW with weight decay on matrices
// only, a cosine schedule with a warm-up, and gradients clipped by their norm. Results depend only on the
// options and the seed, not on the number of threads, nor on whether the run was interrupted and resumed.
#include <mx/mx.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/support/command_line.h"
#include "examples/support/step_run.h"
#include "examples/support/writable.h"
#include "examples/text/corpus.h"

namespace {

using namespace mx;

struct Options : examples::StepOptions {
  std::string data = "examples/data/tinyshakespeare/input.txt.gz";
  std::string weights;
  int64_t batch = 8;
  int64_t length = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t write = 500;
  int64_t validate = 1000;
  double rate = 2e-3;
  double dropout = 0;
  double temperature = 0.8;

  Options() : StepOptions{.steps = 6500} {}
  /// A run can be resumed only if these options are equal too.
  std::string text() const {
    return detail::concat("batch=", batch, " length=", length, " layers=", layers, " heads=", heads,
                          " width=", width, " rate=", rate, " dropout=", dropout);
  }
};

/// Consecutive characters, and the same ones further by one: both (batch, length).
struct Pieces {
  NDArray x, target;
};

/// `starts` (batch,): where the pieces begin.
Pieces pieces_at(const NDArray& text, const NDArray& starts, int64_t length) {
  const NDArray places = starts.expand_dims(1) + arange(length);
  return {take(text, places), take(text, places + 1)};
}

NDArray loss_of(const nn::GPT& gpt, const Pieces& p) {
  const NDArray logits = gpt(p.x);
  return nn::cross_entropy(logits.reshape({-1, logits.size(2)}), p.target.reshape({-1}));
}

class Training {
 public:
  explicit Training(const Options& o) : o_(o), corpus_(o.data), gpt_(model()), numbers_(o.seed) {
    MX_CHECK(rest().numel() > o.length, InvalidArgument, "[char_gpt] expected more than --length ", o.length,
             " characters for validation, a tenth of the text, got ", rest().numel());
    if (!o.weights.empty()) examples::require_writable(o.weights);
  }

  void run() {
    std::printf("char_gpt: %lld characters, %lld different ones, %lld parameters\n",
                static_cast<long long>(train().numel() + rest().numel()),
                static_cast<long long>(corpus_.characters()), static_cast<long long>(gpt_.num_parameters()));
    const auto is_matrix = [](const NamedParameter& p) { return p.array().rank() > 1; };
    const Parameters all = gpt_.parameters();
    optim::AdamW optimizer(all.where(is_matrix),
                           {.lr = o_.rate, .beta2 = 0.99, .weight_decay = 0.1, .max_norm = 1});
    optimizer.add_group(all.where(std::not_fn(is_matrix)),
                        {.lr = o_.rate, .beta2 = 0.99, .weight_decay = 0, .max_norm = 1});
    optim::CosineLR schedule(optimizer, {.steps = o_.steps, .min_lr = o_.rate / 20, .warmup = o_.steps / 20});
    examples::StepRun run(o_, o_.text());
    run.keep("model", gpt_).keep("optimizer", optimizer).keep("schedule", schedule);
    run.keep("numbers", numbers_.state());
    run.train([&](int64_t) {
      const NDArray starts = numbers_.randint(0, train().numel() - o_.length, {o_.batch});
      const NDArray loss = loss_of(gpt_, pieces_at(train(), starts, o_.length));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      schedule.step();
      return examples::StepResult{loss, o_.batch * o_.length};
    });
    if (!o_.weights.empty()) gpt_.save(o_.weights);
    std::printf("validation loss: %.4f nats/char\n", validation_loss());
    write();
  }

 private:
  const NDArray& train() const { return corpus_.train(); }
  const NDArray& rest() const { return corpus_.validation(); }

  nn::GPT model() const {
    manual_seed(static_cast<uint64_t>(o_.seed));
    return nn::GPT({.vocab_size = corpus_.characters(),
                    .n_positions = o_.length,
                    .n_embd = o_.width,
                    .n_layer = o_.layers,
                    .n_head = o_.heads,
                    .resid_pdrop = o_.dropout,
                    .embd_pdrop = o_.dropout,
                    .attn_pdrop = 0,
                    .initializer_range = 0.06});  // narrow models learn faster from larger weights
  }

  /// The mean over pieces that follow each other, up to `validate` batches of the validation text. The first
  /// characters of each piece have little to go by, so this is an upper bound.
  double validation_loss() {
    const NoGrad pause;
    const PredictMode predict;
    const int64_t pieces = std::min((rest().numel() - 1) / o_.length, o_.validate * o_.batch);
    double total = 0;
    for (int64_t first = 0; first < pieces; first += o_.batch) {
      const int64_t count = std::min(o_.batch, pieces - first);
      const NDArray starts = arange(first, first + count) * o_.length;
      total += loss_of(gpt_, pieces_at(rest(), starts, o_.length)).item<float>() * static_cast<double>(count);
    }
    return total / static_cast<double>(pieces);
  }

  void write() {
    if (o_.write == 0) return;
    const auto start = std::chrono::steady_clock::now();
    const size_t newline = corpus_.alphabet().find('\n');
    const std::vector<int64_t> prompt{newline == std::string::npos ? 0 : static_cast<int64_t>(newline)};
    nn::generate(gpt_, prompt,
                 {.max_new_tokens = o_.write,
                  .temperature = o_.temperature,
                  .seed = static_cast<uint64_t>(o_.seed),
                  .on_token = [&](int64_t, int64_t token) {
                    std::putchar(corpus_.alphabet()[static_cast<size_t>(token)]);
                    std::fflush(stdout);
                    return true;
                  }});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("\nwriting: %.0f tokens/s\n", static_cast<double>(o_.write) / taken.count());
  }

  const Options o_;
  const examples::Corpus corpus_;
  nn::GPT gpt_;
  Generator numbers_;  // places in the text
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  mx::examples::CommandLine line("A small GPT learns to write, character by character");
  line.option("--data", &o.data, "a text file, which may be compressed with gzip");
  o.add_to(line);
  line.option("--weights", &o.weights, "file for the weights at the end, with GPT-2's names");
  line.option("--batch", &o.batch, "pieces of text in a step").within(1, 100000);
  line.option("--length", &o.length, "characters in a piece").within(2, 100000);
  line.option("--layers", &o.layers, "of the model").within(1, 1000);
  line.option("--heads", &o.heads, "of attention").within(1, 1000);
  line.option("--width", &o.width, "of the model; a multiple of the heads").within(1, 100000);
  line.option("--rate", &o.rate, "highest learning rate").positive();
  line.option("--dropout", &o.dropout, "behind embeddings, attention and feed-forward parts").within(0, 1);
  line.option("--validate", &o.validate, "batches of the validation text").within(1, 1000000);
  line.option("--write", &o.write, "characters to write at the end").within(0, 10000000);
  line.option("--temperature", &o.temperature, "of what is written").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("char_gpt", [&] { Training(o).run(); });
}
