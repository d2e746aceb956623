// An LSTM learns to write: it predicts the next character of a text, by default of Shakespeare's plays.
//
// The text is cut into streams that are read side by side. The state of the network goes from one piece of a
// stream to the next, but gradients end at the beginning of a piece (truncated backpropagation). Results
// depend only on the options and the seed, not on the number of threads, nor on whether the run was
// interrupted and resumed.
#include <mx/mx.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/command_line.h"
#include "examples/support/memory_watch.h"
#include "examples/support/writable.h"
#include "examples/text/corpus.h"
#include "nn/recurrent.h"

namespace {

using namespace mx;
using mx::examples::Corpus;

struct Options {
  std::string data = "examples/data/tinyshakespeare/input.txt.gz";
  std::string save = "char_lstm.safetensors";
  int64_t epochs = 6;
  int64_t stop_after = 0;
  int64_t batch = 32;
  int64_t length = 64;
  int64_t embedding = 64;
  int64_t hidden = 256;
  int64_t layers = 2;
  int64_t characters = 0;
  int64_t write = 500;
  int64_t seed = 1;
  double rate = 3e-3;
  double dropout = 0.25;
  double temperature = 0.8;
  bool resume = false;

  /// A run can be resumed only if these options are equal.
  std::string text() const {
    return detail::concat("epochs=", epochs, " batch=", batch, " length=", length, " embedding=", embedding,
                          " hidden=", hidden, " layers=", layers, " characters=", characters, " seed=", seed,
                          " rate=", rate, " dropout=", dropout);
  }
};

struct Net : nn::ModuleOf<Net> {
  nn::Embedding embedding;
  nn::LSTM lstm;
  nn::Dropout dropout;
  nn::Linear head;
  Net(int64_t characters, const Options& o)
      : embedding(characters, o.embedding),
        lstm(o.embedding, o.hidden, {.num_layers = o.layers, .dropout = o.dropout}),
        dropout(o.dropout),
        head(o.hidden, characters) {
    add("embedding", embedding);
    add("lstm", lstm);
    add("dropout", dropout);
    add("head", head);
  }

  /// Takes characters (length, batch). Returns logits (length, batch, characters) and the state at the end.
  std::pair<NDArray, nn::LSTMState> forward(const NDArray& x, const std::optional<nn::LSTMState>& start) {
    const auto [y, state] = lstm(embedding(x), start);
    return {head(dropout(y)), state};
  }
};

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options), corpus_(options.data, options.characters), net_(seeded_net()) {
    examples::require_writable(options.save);
    streams_ = Corpus::streams(corpus_.train(), options.batch);
    // A piece needs a character after each of its own.
    pieces_ = (streams_.shape()[0] - 2) / options.length + 1;
    schedule_.emplace(optimizer_,
                      optim::CosineLROptions{.steps = options.epochs * pieces_, .min_lr = options.rate / 20});
    checkpoint_.add("model", net_).add("optimizer", optimizer_).add("schedule", *schedule_);
    checkpoint_.add_random().add("epoch", epoch_).set("options", options.text());
  }

  void run() {
    if (options_.resume && checkpoint_.load_if_exists(options_.save))
      std::printf("resumed after epoch %lld\n", static_cast<long long>(epoch_));
    const int64_t last =
        options_.stop_after > 0 ? std::min(options_.stop_after, options_.epochs) : options_.epochs;
    while (epoch_ < last) {
      const auto begin = std::chrono::steady_clock::now();
      const double loss = train_epoch();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      MX_CHECK(std::isfinite(loss), NumericError, "[char_lstm] expected a finite loss, got ", loss,
               " in epoch ", epoch_ + 1, "; try a smaller --rate");
      ++epoch_;
      checkpoint_.save(options_.save);
      std::printf("epoch %lld: loss %.4f, validation %.4f (%.0f chars/s)\n", static_cast<long long>(epoch_),
                  loss, validation_loss(), static_cast<double>(corpus_.train().numel()) / seconds);
      std::fflush(stdout);
    }
    if (const std::string memory = memory_.text(); !memory.empty())
      std::fprintf(stderr, "%s\n", memory.c_str());
    if (last < options_.epochs) return;
    std::printf("validation loss: %.4f nats per character\n", validation_loss());
    if (options_.write > 0) std::printf("%s\n", written().c_str());
  }

 private:
  Net seeded_net() const {
    manual_seed(static_cast<uint64_t>(options_.seed));
    return Net(corpus_.characters(), options_);
  }

  NDArray loss_of(const NDArray& logits, const NDArray& next) const {
    return nn::cross_entropy(logits.reshape({-1, corpus_.characters()}), next.reshape({-1}));
  }

  double train_epoch() {
    std::optional<nn::LSTMState> state;
    metric::MeanLoss mean;
    const int64_t end = streams_.shape()[0] - 1;
    for (int64_t first = 0; first < end; first += options_.length) {
      const int64_t stop = std::min(first + options_.length, end);
      const NDArray x = streams_.slice(0, {first, stop}), next = streams_.slice(0, {first + 1, stop + 1});
      auto [logits, last] = net_(x, state);
      const NDArray loss = loss_of(logits, next);
      optimizer_.zero_grad();
      loss.backward();
      optimizer_.step();
      schedule_->step();
      state = last.detach();  // gradients end here
      mean.update(loss, x.numel());
      memory_.step(loss.detach());
    }
    return mean.value();
  }

  double validation_loss() {
    const NoGrad pause;
    const PredictMode predict;
    const int64_t count = std::min<int64_t>(16, corpus_.validation().numel() / 2);
    const NDArray text = Corpus::streams(corpus_.validation(), count);
    std::optional<nn::LSTMState> state;
    metric::MeanLoss mean;
    const int64_t end = text.shape()[0] - 1;
    for (int64_t first = 0; first < end; first += options_.length) {
      const int64_t stop = std::min(first + options_.length, end);
      const NDArray x = text.slice(0, {first, stop});
      auto [logits, last] = net_(x, state);
      const NDArray loss = loss_of(logits, text.slice(0, {first + 1, stop + 1}));
      mean.update(loss, x.numel());
      state = last;
      loss.wait();  // otherwise the arrays of many pieces are in memory at once
    }
    return mean.value();
  }

  /// Text of the network's own, one character after the other.
  std::string written() {
    const NoGrad pause;
    const PredictMode predict;
    std::mt19937_64 random(static_cast<uint64_t>(options_.seed));
    std::optional<nn::LSTMState> state;
    std::string text;
    int64_t character = corpus_.train().select(0, 0).item<int64_t>();
    for (int64_t i = 0; i < options_.write; ++i) {
      auto [logits, last] = net_(full({1, 1}, character, i64), state);
      state = last;
      const std::vector<double> shares =
          softmax(logits.reshape({-1}) / options_.temperature).to(f64).to_vector<double>();
      double rest = static_cast<double>(random() >> 11) * 0x1p-53;
      character = 0;
      while (character + 1 < corpus_.characters() && rest >= shares[static_cast<size_t>(character)])
        rest -= shares[static_cast<size_t>(character++)];
      text.push_back(corpus_.alphabet()[static_cast<size_t>(character)]);
    }
    return text;
  }

  const Options options_;
  const Corpus corpus_;
  Net net_;
  optim::Adam optimizer_{net_.parameters(), {.lr = options_.rate, .max_norm = 1}};
  std::optional<optim::CosineLR> schedule_;
  training::Checkpoint checkpoint_;
  NDArray streams_;
  examples::MemoryWatch memory_;
  int64_t pieces_ = 0, epoch_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  mx::examples::CommandLine line("An LSTM learns to predict the next character of a text");
  line.option("--data", &options.data, "a text file, which may be compressed with gzip");
  line.option("--save", &options.save, "the checkpoint, written after each epoch");
  line.flag("--resume", options.resume, "goes on from the checkpoint, if there is one");
  line.option("--epochs", &options.epochs, "passes over the text").within(1, 10000);
  line.option("--stop-after", &options.stop_after, "ends after so many epochs, to be resumed; 0: never")
      .at_least(0);
  line.option("--batch", &options.batch, "streams that are read side by side").within(1, 65536);
  line.option("--length", &options.length, "characters of a piece, through which gradients flow")
      .within(1, 65536);
  line.option("--embedding", &options.embedding, "numbers that stand for a character").within(1, 65536);
  line.option("--hidden", &options.hidden, "size of the state").within(1, 65536);
  line.option("--layers", &options.layers, "layers of the LSTM").within(1, 64);
  line.option("--dropout", &options.dropout, "share of the results of a layer that is dropped").within(0, 1);
  line.option("--rate", &options.rate, "learning rate of Adam at the start").positive();
  line.option("--characters", &options.characters, "bytes of the text to use; 0: all").at_least(0);
  line.option("--write", &options.write, "characters to write at the end").at_least(0);
  line.option("--temperature", &options.temperature, "of the distribution of written characters").positive();
  line.option("--seed", &options.seed, "of all random numbers").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("char_lstm", [&] { Training(options).run(); });
}
