// The state machine of servers: random interleavings, repeated requests and errors against a serial model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/server/machine.h"

namespace mx::kv {
namespace {

Bytes bytes_of(const std::vector<float>& values) {
  return Bytes::of(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> values(bytes.size / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data, bytes.size);
  return values;
}

/// value -= rate * gradient
class PlainUpdater final : public Updater {
 public:
  void set_optimizer(const OptionsBody& optimizer) override {
    if (optimizer.name != "plain")
      throw InvalidArgument("[set_optimizer] expected plain, got " + optimizer.name);
    on_ = true;
  }
  bool has_optimizer() const override { return on_; }
  void set_option(const std::string&, double value) override { rate_ = static_cast<float>(value); }
  Bytes convert(const Bytes& elements, comm::Type, comm::Type) override { return elements; }
  Bytes update(uint32_t, const KeyBody&, const Bytes& value, const Bytes& gradient) override {
    std::vector<float> result = floats_of(value);
    const std::vector<float> g = floats_of(gradient);
    for (size_t i = 0; i < result.size(); ++i) {
      if (g[i] == 666.0f) throw NumericError("[plain] expected another number, got 666");
      result[i] -= rate_ * g[i];
    }
    return bytes_of(result);
  }
  void forget_value(uint32_t) override {}
  void erase(uint32_t) override {}
  std::vector<StateArray> state(uint32_t, const KeyBody&, const Bytes&) override { return {}; }
  void set_state(uint32_t, const KeyBody&, const Bytes&, const std::vector<StateArray>&) override {}

 private:
  bool on_ = false;
  float rate_ = 1;
};

/// Workers that talk to a machine. Messages of one worker stay in order; those of different workers may
/// overtake each other.
class Bench {
 public:
  Bench(uint32_t workers, bool sync, int64_t staleness = -1)
      : machine(std::make_shared<PlainUpdater>()), workers_(workers) {
    for (uint32_t w = 0; w < workers; ++w)
      ask(w, Kind::open, 0,
          Bytes::of(encode(
              OpenBody{.workers = workers, .sync = sync, .staleness = staleness, .piece_bytes = 1 << 20})));
    for (uint32_t w = 0; w < workers; ++w) EXPECT_TRUE(answered(w, 0));
  }

  /// Sends the next request of a worker for a key.
  uint64_t ask(uint32_t worker, Kind kind, uint32_t key, Bytes body = {}, uint64_t number = 0) {
    Message message{{.kind = kind,
                     .worker = worker,
                     .key = key,
                     .incarnation = 100 + worker,
                     .sequence = ++sequence_[{worker, key}],
                     .number = number,
                     .bytes = body.size},
                    std::move(body)};
    last_[{worker, key}] = {message.header, floats_or_text(message.body)};
    send(worker, std::move(message));
    return sequence_[{worker, key}];
  }
  /// Sends the last request again.
  void repeat(uint32_t worker, uint32_t key) {
    const auto& [header, text] = last_[{worker, key}];
    send(worker, {header, Bytes::of(text)});
  }
  void send(uint32_t connection, Message message) {
    Outbox out;
    machine.receive(connection, std::move(message), out);
    collect(out);
  }
  void collect(Outbox& out) {
    for (Outgoing& o : out) {
      const Header& h = o.message.header;
      ++answers_[{static_cast<uint32_t>(o.connection), h.key, h.sequence}];
      last_answer_[{static_cast<uint32_t>(o.connection), h.key}] = std::move(o.message);
    }
    out.clear();
  }
  bool answered(uint32_t worker, uint32_t key) {
    return answers_.contains({worker, key, sequence_[{worker, key}]});
  }
  int times_answered(uint32_t worker, uint32_t key) {
    return answers_[{worker, key, sequence_[{worker, key}]}];
  }
  const Message& answer(uint32_t worker, uint32_t key) { return last_answer_.at({worker, key}); }
  ErrorCode error(uint32_t worker, uint32_t key) {
    const Message& message = answer(worker, key);
    return message.header.kind == Kind::refusal ? static_cast<ErrorCode>(message.header.flags) : ErrorCode{};
  }

  void declare(uint32_t key, size_t count, bool stored = true) {
    for (uint32_t w = 0; w < workers_; ++w) ask(w, Kind::declare, key, description(key, count, stored));
    for (uint32_t w = 0; w < workers_; ++w) EXPECT_TRUE(answered(w, key));
  }
  static Bytes description(uint32_t key, size_t count, bool stored = true) {
    KeyBody body;
    body.name = "key " + std::to_string(key);
    body.shape = {static_cast<int64_t>(count)};
    body.count = count;
    body.stored = stored;
    return Bytes::of(encode(body));
  }

  Machine machine;

 private:
  static std::string floats_or_text(const Bytes& body) { return std::string(body.text()); }

  const uint32_t workers_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> sequence_;
  std::map<std::pair<uint32_t, uint32_t>, std::pair<Header, std::string>> last_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, int> answers_;
  std::map<std::pair<uint32_t, uint32_t>, Message> last_answer_;
};

std::vector<float> value_of(uint32_t worker, uint32_t key, int round, size_t count) {
  std::mt19937 random(worker * 1000 + key * 100 + static_cast<uint32_t>(round));
  std::vector<float> values(count);
  for (float& v : values)
    v = std::ldexp(static_cast<float>(random() >> 8), static_cast<int>(random() % 20) - 30);
  return values;
}

TEST(ServerMachine, RoundsInAnyInterleavingGiveTheBitsOfTheSerialModel) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const uint32_t workers = 1 + random() % 4, keys = 1 + random() % 3;
    const int rounds = 4;
    const bool optimise = seed % 2 == 0;
    Bench bench(workers, true);
    if (optimise)
      for (uint32_t w = 0; w < workers; ++w)
        bench.ask(w, Kind::set_optimizer, 0, Bytes::of(encode(OptionsBody{"plain", {}})));
    for (uint32_t k = 1; k <= keys; ++k) {
      bench.declare(k, k);
      bench.ask(0, Kind::init, k, bytes_of(value_of(99, k, 0, k)));
    }
    // Each worker does push and pull, or both in one, for each key and round, each key at its own pace.
    struct Progress {
      int round = 0;
      bool pushed = false, fused = false, asked = false;
    };
    std::map<std::pair<uint32_t, uint32_t>, Progress> progress;
    const auto expected = [&](uint32_t key, int round) {
      std::vector<float> value = value_of(99, key, 0, key);
      for (int r = 0; r <= round; ++r) {
        std::vector<float> sum = value_of(0, key, r, key);
        for (uint32_t w = 1; w < workers; ++w) {
          const std::vector<float> more = value_of(w, key, r, key);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
        }
        if (!optimise) value = sum;
        if (optimise)
          for (size_t i = 0; i < sum.size(); ++i) value[i] -= sum[i];
      }
      return value;
    };
    size_t complete = 0;
    while (complete < size_t{workers} * keys) {
      const uint32_t w = random() % workers, k = 1 + random() % keys;
      Progress& p = progress[{w, k}];
      if (p.round == rounds) continue;
      if (p.asked && random() % 3 == 0) bench.repeat(w, k);
      if (p.asked && !bench.answered(w, k)) continue;
      if (p.asked) {
        ASSERT_EQ(bench.answer(w, k).header.kind, Kind::answer);
        if (p.fused || !p.pushed) {  // the answer has the value
          ASSERT_EQ(floats_of(bench.answer(w, k).body), expected(k, p.round)) << "seed " << seed;
          p = {.round = p.round + 1};
          if (p.round == rounds) {
            ++complete;
            continue;
          }
        } else {
          p.pushed = false;  // now it pulls
          bench.ask(w, Kind::pull, k);
          continue;
        }
      }
      p.asked = p.pushed = true;
      p.fused = random() % 2 == 0;
      bench.ask(w, p.fused ? Kind::pushpull : Kind::push, k, bytes_of(value_of(w, k, p.round, k)));
    }
    for (uint32_t k = 1; k <= keys; ++k) EXPECT_EQ(bench.machine.version(k), static_cast<uint64_t>(rounds));
  }
}

TEST(ServerMachine, ARoundNeedsDistinctWorkers) {
  Bench bench(2, true);
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({5}));
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  for (int i = 0; i < 3; ++i) bench.repeat(0, 1);
  bench.ask(0, Kind::push, 1, bytes_of({10}));  // of the next round
  EXPECT_EQ(bench.machine.version(1), 0u);
  bench.ask(1, Kind::pushpull, 1, bytes_of({2}));
  EXPECT_EQ(bench.machine.version(1), 1u);
  EXPECT_EQ(floats_of(bench.answer(1, 1).body), std::vector<float>{3});
  bench.repeat(1, 1);
  bench.repeat(1, 1);
  EXPECT_EQ(bench.machine.version(1), 1u);
  EXPECT_EQ(bench.times_answered(1, 1), 3);
  EXPECT_EQ(floats_of(bench.answer(1, 1).body), std::vector<float>{3});
}

TEST(ServerMachine, AsynchronousPushesAreAppliedOnceAndStayWithinTheBound) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const uint32_t workers = 2 + random() % 3;
    const int64_t staleness = 1 + random() % 3;
    const int pushes = 12;
    Bench bench(workers, false, staleness);
    for (uint32_t w = 0; w < workers; ++w)
      bench.ask(w, Kind::set_optimizer, 0, Bytes::of(encode(OptionsBody{"plain", {}})));
    bench.declare(1, 1);
    bench.ask(0, Kind::init, 1, bytes_of({0}));
    std::vector<int> sent(workers, 0);
    int left = static_cast<int>(workers) * pushes;
    while (left > 0) {
      const uint32_t w = random() % workers;
      if (sent[w] > 0 && random() % 3 == 0) bench.repeat(w, 1);
      if (sent[w] < pushes && (sent[w] == 0 || bench.answered(w, 1))) {
        bench.ask(w, Kind::push, 1, bytes_of({-1}));
        ++sent[w];
        --left;
      }
      int fastest = 0, slowest = pushes;
      for (uint32_t v = 0; v < workers; ++v) {
        const int done = sent[v] - (sent[v] > 0 && !bench.answered(v, 1) ? 1 : 0);
        fastest = std::max(fastest, done);
        slowest = std::min(slowest, done);
      }
      ASSERT_LE(fastest - slowest, staleness);
    }
    bench.ask(0, Kind::pull, 1);
    EXPECT_EQ(floats_of(bench.answer(0, 1).body)[0], static_cast<float>(workers) * pushes);
    EXPECT_EQ(bench.machine.version(1), uint64_t{workers} * pushes);
  }
}

TEST(ServerMachine, AWorkerThatHasLeftHoldsNobodyBack) {
  Bench bench(2, false, 1);
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  bench.ask(0, Kind::push, 1, bytes_of({2}));
  EXPECT_FALSE(bench.answered(0, 1));
  Outbox out;
  bench.machine.departed(1, out);
  bench.collect(out);
  EXPECT_TRUE(bench.answered(0, 1));
}

TEST(ServerMachine, RoundsThatWaitForAWorkerThatHasLeftAreRefused) {
  Bench bench(3, true);
  bench.declare(1, 1);
  bench.declare(2, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  bench.ask(1, Kind::push, 2, bytes_of({1}));  // the last request of worker 1 counts
  bench.ask(0, Kind::barrier, 0);
  bench.ask(1, Kind::close, 0);
  EXPECT_TRUE(bench.answered(1, 0));
  EXPECT_EQ(bench.error(0, 1), ErrorCode::worker_left);
  EXPECT_EQ(bench.answer(0, 1).header.number, 2u) << "1 + the worker that has left";
  EXPECT_EQ(bench.error(0, 0), ErrorCode::worker_left);
  bench.ask(2, Kind::push, 1, bytes_of({1}));  // that comes later
  EXPECT_EQ(bench.error(2, 1), ErrorCode::worker_left);
  bench.ask(2, Kind::barrier, 0);
  EXPECT_EQ(bench.error(2, 0), ErrorCode::worker_left);
  for (const uint32_t w : {0u, 2u}) bench.ask(w, Kind::pushpull, 2, bytes_of({1}));
  EXPECT_EQ(floats_of(bench.answer(2, 2).body), std::vector<float>{3});
  for (const uint32_t w : {0u, 2u}) bench.ask(w, Kind::erase, 2);
  EXPECT_TRUE(bench.answered(0, 2)) << "a worker that has left erases nothing";
}

TEST(ServerMachine, AnEraseThatWaitsEndsWhenTheLastOtherWorkerLeaves) {
  Bench bench(3, true);
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  for (const uint32_t w : {0u, 1u}) bench.ask(w, Kind::erase, 1);
  EXPECT_FALSE(bench.answered(0, 1));
  bench.ask(2, Kind::close, 0);
  for (const uint32_t w : {0u, 1u}) {
    ASSERT_TRUE(bench.answered(w, 1));
    EXPECT_EQ(bench.answer(w, 1).header.kind, Kind::answer);
    EXPECT_EQ(bench.times_answered(w, 1), 1);
  }
}

// An asynchronous worker whose value has failed sends nothing more for the key.
TEST(ServerMachine, AWorkerWhoseValueHasFailedHoldsNobodyBack) {
  Bench bench(3, false, 1);
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  bench.ask(1, Kind::push, 1, bytes_of({1}));
  bench.ask(0, Kind::push, 1, bytes_of({2}));
  EXPECT_FALSE(bench.answered(0, 1)) << "worker 2 is behind";
  bench.ask(2, Kind::failed, 1, Bytes::of("lost batch"));
  EXPECT_EQ(bench.answer(2, 1).header.kind, Kind::answer);
  EXPECT_TRUE(bench.answered(0, 1));
  bench.ask(0, Kind::push, 1, bytes_of({3}));
  EXPECT_FALSE(bench.answered(0, 1)) << "worker 1 still counts";
  bench.ask(1, Kind::push, 1, bytes_of({4}));
  EXPECT_TRUE(bench.answered(0, 1));
}

TEST(ServerMachine, AFailedPushThatComesBeforeTheFirstValueDoesNotFailTheKeyOfAsynchronousWorkers) {
  Bench bench(2, false);
  bench.declare(1, 1);
  bench.ask(1, Kind::failed, 1, Bytes::of("lost batch"));
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  for (uint32_t w = 0; w < 2; ++w) EXPECT_EQ(bench.answer(w, 1).header.kind, Kind::answer);
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  EXPECT_EQ(bench.answer(0, 1).header.kind, Kind::answer);
  // Without the first value there is no key.
  Bench other(2, false);
  other.declare(1, 1);
  other.ask(1, Kind::failed, 1, Bytes::of("lost batch"));
  other.ask(0, Kind::failed, 1, Bytes::of("lost weights"));
  for (uint32_t w = 0; w < 2; ++w) EXPECT_EQ(other.answer(w, 1).header.kind, Kind::refusal);
}

TEST(ServerMachine, AFailedValueFailsTheKeyUntilAllHaveErasedIt) {
  Bench bench(2, true);
  bench.declare(1, 1);
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  bench.ask(1, Kind::failed, 1, Bytes::of("lost batch"));
  for (uint32_t w = 0; w < 2; ++w)
    EXPECT_NE(std::string(bench.answer(w, 1).body.text()).find("lost batch"), std::string::npos);
  bench.ask(0, Kind::pull, 1);
  EXPECT_EQ(bench.answer(0, 1).header.kind, Kind::refusal);
  for (uint32_t w = 0; w < 2; ++w) {
    bench.ask(w, Kind::erase, 1);
    EXPECT_EQ(bench.answer(w, 1).header.kind, Kind::answer);
  }
  EXPECT_EQ(bench.machine.version(1), 0u) << "the key is gone";
}

TEST(ServerMachine, OptionsTakeEffectAfterEarlierPushes) {
  Bench bench(2, true);
  for (uint32_t w = 0; w < 2; ++w)
    bench.ask(w, Kind::set_optimizer, 0, Bytes::of(encode(OptionsBody{"plain", {}})));
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  bench.ask(0, Kind::push, 1, bytes_of({-1}));
  const Bytes option = Bytes::of(encode(OptionsBody{"", {{"lr", 10.0}}}));
  bench.ask(0, Kind::set_option, 0, option);
  bench.ask(1, Kind::push, 1, bytes_of({-1}));
  bench.ask(1, Kind::set_option, 0, option);
  for (uint32_t w = 0; w < 2; ++w) bench.ask(w, Kind::pushpull, 1, bytes_of({-1}));
  EXPECT_EQ(floats_of(bench.answer(0, 1).body), std::vector<float>{22});
}

TEST(ServerMachine, ErrorsAreAnswersWithTheirTypeAndChangeNothing) {
  Bench bench(2, true);
  for (uint32_t w = 0; w < 2; ++w)
    bench.ask(w, Kind::set_optimizer, 0, Bytes::of(encode(OptionsBody{"unknown", {}})));
  EXPECT_EQ(bench.error(0, 0), ErrorCode::invalid_argument);
  EXPECT_EQ(bench.error(1, 0), ErrorCode::invalid_argument);
  for (uint32_t w = 0; w < 2; ++w)
    bench.ask(w, Kind::set_optimizer, 0, Bytes::of(encode(OptionsBody{"plain", {}})));
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({7}));
  bench.ask(0, Kind::push, 1, bytes_of({333}));
  bench.ask(1, Kind::push, 1, bytes_of({333}));  // 666 in all
  EXPECT_EQ(bench.error(0, 1), ErrorCode::numeric);
  EXPECT_EQ(bench.error(1, 1), ErrorCode::numeric);
  bench.repeat(1, 1);
  EXPECT_EQ(bench.error(1, 1), ErrorCode::numeric);
  bench.ask(1, Kind::pull, 1);
  EXPECT_EQ(floats_of(bench.answer(1, 1).body), std::vector<float>{7});
  EXPECT_EQ(bench.machine.version(1), 0u);
}

TEST(ServerMachine, ForeignIncarnationsAndStrangersAreRefused) {
  Bench bench(2, true);
  bench.declare(1, 1);
  Header header{.kind = Kind::pull, .worker = 1, .key = 1, .incarnation = 5, .sequence = 2};
  bench.send(9, {header, {}});
  EXPECT_EQ(bench.error(9, 1), ErrorCode::invalid_state);
  header.incarnation = 101;
  header.worker = 2;
  bench.send(9, {header, {}});
  EXPECT_EQ(bench.error(9, 1), ErrorCode::protocol);
  header.worker = 1;
  header.sequence = 7;  // a request is missing
  bench.send(9, {header, {}});
  EXPECT_EQ(bench.error(9, 1), ErrorCode::protocol);
  bench.ask(1, Kind::init, 1, bytes_of({1}));  // only worker 0 may
  EXPECT_EQ(bench.error(1, 1), ErrorCode::protocol);
}

TEST(ServerMachine, BodiesAreBoundedBeforeTheyAreRead) {
  Bench bench(1, true);
  bench.declare(1, 10);
  const Header push{.kind = Kind::push, .key = 1, .incarnation = 100, .sequence = 2, .bytes = 40};
  EXPECT_EQ(bench.machine.largest_body(push), 40u);
  for (uint64_t bytes : {0u, 39u, 41u, 1u << 30}) {
    Header wrong = push;
    wrong.bytes = bytes;
    EXPECT_THROW(bench.machine.largest_body(wrong), ProtocolError);
  }
  Header unknown = push;
  unknown.key = 2;
  EXPECT_THROW(bench.machine.largest_body(unknown), ProtocolError);
  Header pull = push;
  pull.kind = Kind::pull;
  EXPECT_LE(bench.machine.largest_body(pull), kLargestText);
}

TEST(ServerMachine, DifferentDescriptionsAndCallsAreNamed) {
  Bench bench(3, true);
  bench.ask(0, Kind::declare, 1, Bench::description(1, 4));
  bench.ask(2, Kind::declare, 1, Bench::description(1, 5));
  for (uint32_t w : {0u, 2u}) {
    EXPECT_EQ(bench.error(w, 1), ErrorCode::protocol);
    const std::string text(bench.answer(w, 1).body.text());
    EXPECT_NE(text.find("(4) 'key 1'"), std::string::npos) << text;
    EXPECT_NE(text.find("(5) 'key 1' from worker 2"), std::string::npos) << text;
  }
  bench.ask(1, Kind::declare, 1, Bench::description(1, 4));  // comes late
  EXPECT_EQ(bench.error(1, 1), ErrorCode::protocol);
  bench.declare(2, 1, false);
  bench.ask(0, Kind::pushpull, 2, bytes_of({1}));
  bench.ask(1, Kind::erase, 2);
  EXPECT_EQ(bench.error(0, 2), ErrorCode::protocol);
  EXPECT_EQ(bench.error(1, 2), ErrorCode::protocol);
  bench.ask(0, Kind::barrier, 0);
  bench.ask(1, Kind::set_option, 0, Bytes::of(encode(OptionsBody{"", {{"lr", 1.0}}})));
  bench.ask(2, Kind::barrier, 0);
  EXPECT_EQ(bench.error(2, 0), ErrorCode::protocol);
}

TEST(ServerMachine, MissingWorkersAreListed) {
  Bench bench(4, true);
  bench.declare(1, 1, false);
  bench.ask(2, Kind::push, 1, bytes_of({1}));
  const auto missing = [&](uint64_t sequence, uint64_t key) {
    bench.send(2, {{.kind = Kind::missing,
                    .worker = 2,
                    .key = 77,
                    .incarnation = 102,
                    .sequence = sequence,
                    .number = key},
                   {}});
    return bench.answer(2, 77);
  };
  const uint64_t push = 2;  // the declaration was the first request for the key
  EXPECT_EQ(missing(push, 1).body.text(), "these did not come: worker 0, worker 1, worker 3");
  EXPECT_EQ(missing(push, 1).header.number, 1u);
  bench.ask(3, Kind::barrier, 0);
  const uint64_t barrier = 2;  // that of worker 2, after its opening, is still on its way
  EXPECT_EQ(missing(barrier, 0).body.text(), "these did not come: worker 0, worker 1");
  for (const uint32_t worker : {0u, 1u, 3u}) bench.ask(worker, Kind::push, 1, bytes_of({1}));
  EXPECT_TRUE(missing(push, 1).body.text().empty()) << "it is complete, and nobody has to come";
  EXPECT_EQ(missing(push, 1).header.number, 0u);
}

TEST(ServerMachine, OfAnAsynchronousStoreOnlyTheWorkersThatHoldTheOthersBackAreNamed) {
  Bench bench(4, false, 2);
  bench.declare(1, 1);
  const auto missing = [&](uint32_t worker, uint64_t sequence) {
    bench.send(worker, {{.kind = Kind::missing,
                         .worker = worker,
                         .key = 77,
                         .incarnation = 100 + worker,
                         .sequence = sequence,
                         .number = 1},
                        {}});
    return bench.answer(worker, 77).body.text();
  };
  EXPECT_EQ(missing(3, bench.ask(3, Kind::pull, 1)), "these did not come: worker 0") << "only it initialises";
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  // Worker 0 has pushed two values and waits with the third. Worker 1 has pushed one, worker 2 none, and
  // worker 3 has left.
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) last = bench.ask(0, Kind::push, 1, bytes_of({1}));
  bench.ask(1, Kind::push, 1, bytes_of({1}));
  Outbox out;
  bench.machine.departed(3, out);
  bench.collect(out);
  EXPECT_EQ(missing(0, last), "these did not come: worker 2");
  bench.ask(2, Kind::push, 1, bytes_of({1}));
  EXPECT_EQ(missing(0, last), "") << "it is complete, and nobody has to come";
}

// So that the error of a lost worker can say why it has ended.
TEST(ServerMachine, RemembersWhyWorkersMayHaveEnded) {
  Bench bench(3, true);
  bench.declare(1, 1);
  bench.ask(0, Kind::init, 1, bytes_of({0}));
  bench.ask(2, Kind::push, 1, bytes_of({1}));
  for (const int w : {0, 1, 2}) EXPECT_EQ(bench.machine.failed_because_of(w), nullptr);
  bench.ask(1, Kind::close, 0);
  EXPECT_EQ(bench.error(2, 1), ErrorCode::worker_left);
  EXPECT_EQ(bench.machine.failed_because_of(0), nullptr) << "it has not asked since";
  for (const int w : {1, 2}) {
    const std::string text = text_of(bench.machine.failed_because_of(w));
    EXPECT_NE(text.find("worker 1"), std::string::npos) << text;
    EXPECT_NE(text.find("'key 1'"), std::string::npos) << text;
  }
}

TEST(ServerMachine, ALostWorkerFailsAllRequests) {
  Bench bench(2, true);
  bench.declare(1, 1, false);
  bench.ask(0, Kind::push, 1, bytes_of({1}));
  Outbox out;
  bench.machine.fail(std::make_exception_ptr(PeerLost("worker 1 on host h is lost")), 1, out);
  bench.collect(out);
  EXPECT_EQ(bench.error(0, 1), ErrorCode::peer_lost);
  bench.ask(0, Kind::barrier, 0);
  EXPECT_EQ(bench.error(0, 0), ErrorCode::peer_lost);
  EXPECT_EQ(bench.answer(0, 0).body.text(), "worker 1 on host h is lost");
}

}  // namespace
}  // namespace mx::kv
