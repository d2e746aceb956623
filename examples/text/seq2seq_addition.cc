// Sequence to sequence with attention: a network reads "345+87=" and writes "432", character by character.
//
// The encoder, a GRU in both directions, reads the questions of a batch, which have several lengths, as
// packed sequences. The decoder has two GRUs: the results of the first one ask, by attention, for what the
// encoder has found at each character of the question, and the second one reads both and writes the answer.
// In training the decoder reads the right answer (teacher forcing), so all its steps are one call; in tests
// it reads what it has written itself.
//
// Training never sees the additions of the test. Results depend only on the options and the seed, not on the
// number of threads, nor on whether the run was interrupted and resumed.
#include <mx/mx.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/command_line.h"
#include "examples/support/step_run.h"
#include "examples/text/additions.h"

namespace {

using namespace mx;
using examples::Addition;
using examples::AdditionBatch;
using examples::Additions;

struct Options : examples::StepOptions {
  int64_t digits = 3;
  int64_t batch = 128;
  int64_t embedding = 32;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t test = 2000;
  int64_t show = 5;
  double rate = 4e-3;
  double decay = 0.1;

  Options() : StepOptions{.steps = 4000} {}
  /// A run can be resumed only if these options are equal too.
  std::string text() const {
    return detail::concat("digits=", digits, " batch=", batch, " embedding=", embedding, " hidden=", hidden,
                          " heads=", heads, " rate=", rate, " decay=", decay);
  }
};

struct Net : nn::ModuleOf<Net> {
  nn::Embedding embedding;
  nn::GRU encoder;
  nn::Linear bridge;
  nn::GRU asker;
  nn::MultiheadAttention attention;
  nn::GRU writer;
  nn::Linear head;

  explicit Net(const Options& o)
      : embedding(examples::kAdditionTokens, o.embedding),
        encoder(o.embedding, o.hidden / 2, {.bidirectional = true}),
        bridge(o.hidden, o.hidden),
        asker(o.embedding, o.hidden),
        attention(o.hidden, o.heads),
        writer(2 * o.hidden, o.hidden),
        head(o.hidden, examples::kAdditionTokens) {
    add("embedding", embedding);
    add("encoder", encoder);
    add("bridge", bridge);
    add("asker", asker);
    add("attention", attention);
    add("writer", writer);
    add("head", head);
  }

  /// The results of the encoder.
  struct Read {
    NDArray states;   // (steps, batch, hidden)
    NDArray padding;  // (batch, steps): true behind the end of a question
    NDArray summary;  // (1, batch, hidden)
  };
  Read read(const AdditionBatch& b) {
    const auto [packed, last] =
        encoder(nn::pack_padded_sequence(embedding(b.question), b.lengths, {.enforce_sorted = false}));
    const NDArray lengths = array(b.lengths);
    return {.states = nn::pad_packed_sequence(packed).first,
            .padding = arange(b.question.size(0)).expand_dims(0) >= lengths.expand_dims(1),
            .summary = tanh(bridge(concat(last[0], last[1], 1))).expand_dims(0)};
  }

  struct State {
    NDArray asker, writer;  // (1, batch, hidden); an empty handle: zeros
  };
  /// Takes tokens (steps, batch). Returns the logits (steps, batch, tokens) of the next ones, and the state
  /// behind them.
  std::pair<NDArray, State> write(const NDArray& tokens, const Read& read, const State& state) {
    const auto [queries, asked] = asker(embedding(tokens), state.asker);
    const NDArray found = attention(queries, read.states, read.states,
                                    {.key_padding_mask = read.padding, .need_weights = false})
                              .first;
    const auto [y, written] = writer(concat(queries, found, 2), state.writer);
    return {head(y), {asked, written}};
  }

  NDArray loss(const AdditionBatch& b) {
    const Read question = read(b);
    const NDArray logits = write(b.input, question, {question.summary, {}}).first;
    return nn::cross_entropy(logits.reshape({-1, examples::kAdditionTokens}), b.target.reshape({-1}));
  }

  /// Writes `steps` tokens (batch, steps), each the likeliest one.
  NDArray answers(const AdditionBatch& b, int64_t steps) {
    const Read question = read(b);
    State state{question.summary, {}};
    NDArray token = full({1, b.question.size(1)}, examples::kAdditionEnd, i64);
    std::vector<NDArray> written;
    for (int64_t step = 0; step < steps; ++step) {
      const auto [logits, next] = write(token, question, state);
      token = argmax(logits, 2);
      state = next;
      written.push_back(token);
    }
    return concat(written, 0).transpose();
  }
};

/// Prints some answers and the share of those that are right in every digit.
void test(Net& net, const Additions& additions, const Options& o) {
  const NoGrad pause;
  const PredictMode predict;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Addition> questions = additions.test(o.test);
  const int64_t steps = o.digits + 2;  // a digit more than the numbers, and the end
  const auto count = static_cast<int64_t>(questions.size());
  constexpr int64_t kBatch = 500;
  int64_t right = 0, shown = 0, tokens = 0;
  for (int64_t first = 0; first < count; first += kBatch) {
    const auto some = std::span(questions).subspan(static_cast<size_t>(first),
                                                   static_cast<size_t>(std::min(kBatch, count - first)));
    const AdditionBatch batch = examples::batch_of(some);
    const std::vector<int64_t> written = net.answers(batch, steps).to_vector<int64_t>();
    tokens += batch.tokens;
    for (size_t i = 0; i < some.size(); ++i) {
      const std::string answer = examples::answer_of(
          std::span(written).subspan(i * static_cast<size_t>(steps), static_cast<size_t>(steps)));
      const bool is_right = answer == some[i].answer();
      right += is_right ? 1 : 0;
      if (shown++ < o.show)
        std::printf("%s%s%s\n", some[i].question().c_str(), answer.c_str(), is_right ? "" : " (wrong)");
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("writing: %.0f tokens/s\n", static_cast<double>(tokens) / taken.count());
  std::printf("exact: %.4f of %lld additions that training has not seen\n",
              static_cast<double>(right) / static_cast<double>(count), static_cast<long long>(count));
}

void run(const Options& o) {
  manual_seed(static_cast<uint64_t>(o.seed));
  const Additions additions(o.digits, o.seed);
  Net net(o);
  std::printf("seq2seq_addition: numbers of up to %lld digits, %lld parameters\n",
              static_cast<long long>(o.digits), static_cast<long long>(net.num_parameters()));
  // Without the decay of the weights the network learns the additions of training rather than how to add.
  optim::AdamW optimizer(net.parameters(), {.lr = o.rate, .weight_decay = o.decay, .max_norm = 1});
  optim::CosineLR schedule(optimizer, {.steps = o.steps, .warmup = o.steps / 20});
  examples::StepRun training(o, o.text());
  training.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule);
  training.train([&](int64_t step) {
    const AdditionBatch batch = examples::batch_of(additions.training(step, o.batch));
    const NDArray loss = net.loss(batch);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    return examples::StepResult{loss, batch.tokens};
  });
  test(net, additions, o);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  mx::examples::CommandLine line("A network with attention learns to add numbers, digit by digit");
  o.add_to(line);
  line.option("--digits", &o.digits, "of the longest numbers").within(2, 9);
  line.option("--batch", &o.batch, "additions in a step").within(1, 100000);
  line.option("--embedding", &o.embedding, "numbers that stand for a character").within(1, 65536);
  line.option("--hidden", &o.hidden, "size of the states; even, and a multiple of the heads")
      .within(2, 65536);
  line.option("--heads", &o.heads, "of attention").within(1, 1000);
  line.option("--rate", &o.rate, "highest learning rate").positive();
  line.option("--decay", &o.decay, "decay of the weights").at_least(0);
  line.option("--test", &o.test, "additions to test with").within(1, 1000000);
  line.option("--show", &o.show, "answers to print").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("seq2seq_addition", [&] { run(o); });
}
