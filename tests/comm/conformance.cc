#include "tests/comm/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/fold.h"
#include "engine/base/error.h"
#include "engine/base/half.h"
#include "tests/comm/rank_processes.h"
#include "tests/comm/repeated.h"

namespace mx::comm {

std::string conformance_name(const ::testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.name;
}

std::vector<std::exception_ptr> run_ranks(const RankGroup& group,
                                          const std::function<void(int, Communicator&)>& f) {
  std::vector<std::exception_ptr> errors(group.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < group.size(); ++r)
    if (group[r] != nullptr)
      threads.emplace_back([&, r] {
        try {
          f(static_cast<int>(r), *group[r]);
        } catch (...) {
          errors[r] = std::current_exception();
        }
      });
  for (auto& thread : threads) thread.join();
  meet_processes();
  return errors;
}

Communicator& any_rank(const RankGroup& group) {
  return **std::find_if(group.begin(), group.end(), [](const auto& member) { return member != nullptr; });
}

std::vector<int> Conformance::sizes(const std::vector<int>& wanted) {
  std::vector<int> found;
  const RankProcesses* const processes = RankProcesses::of_job();
  for (const int ranks : wanted)
    if (processes == nullptr || ranks == processes->size()) found.push_back(ranks);
  return found;
}

std::vector<int> Conformance::sizes() {
  std::vector<int> all(static_cast<size_t>(GetParam().most_ranks));
  std::iota(all.begin(), all.end(), 1);
  return sizes(all);
}

bool Conformance::ends(int ranks) {
  if (sizes({ranks}).empty()) return false;
  RankProcesses* const processes = RankProcesses::of_job();
  return processes == nullptr || processes->runs_next_ending();
}

RankGroup Conformance::make(int ranks) {
  made_ = true;
  return GetParam().make(ranks);
}

void Conformance::TearDown() {
  meet_processes();
  if (!made_ && RankProcesses::of_job() != nullptr)
    GTEST_SKIP() << "the test needs another number of ranks, or a job of its own because it ends the group";
}

void expect_ranks(const RankGroup& group, const std::function<void(int, Communicator&)>& f) {
  const auto errors = run_ranks(group, f);
  for (size_t r = 0; r < errors.size(); ++r)
    EXPECT_EQ(errors[r], nullptr) << "rank " << r << " of " << errors.size() << ": " << error_text(errors[r]);
}

std::string error_text(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return current_exception_text();
  }
}

namespace {

template <class F>
void visit_conformance_type(Type type, F f) {
  switch (type) {
    case Type::f32:
      return f(float{});
    case Type::f64:
      return f(double{});
    case Type::f16:
      return f(float16{});
    case Type::bf16:
      return f(bfloat16{});
    case Type::i8:
      return f(int8_t{});
    case Type::u8:
      return f(uint8_t{});
    case Type::i32:
      return f(int32_t{});
    case Type::i64:
      return f(int64_t{});
  }
}

using Bytes = std::vector<unsigned char>;

std::vector<Bytes> rows_of(Type type, size_t count, int ranks, uint64_t seed) {
  std::vector<Bytes> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(test_data(type, count, r, seed));
  return rows;
}

std::string where(const char* what, Type type, size_t count, int rank, int ranks) {
  return std::string(what) + " of " + std::to_string(count) + " x " + to_string(type) + " on rank " +
         std::to_string(rank) + " of " + std::to_string(ranks);
}

// Buffers start with bytes that differ from every result, so that a result that was not written is found.
Bytes fresh(size_t bytes) { return Bytes(bytes, 0xA5); }

void expect_near(const Bytes& got, const Bytes& expected, Type type, const std::string& at) {
  ASSERT_EQ(got.size(), expected.size());
  visit_conformance_type(type, [&](auto element) {
    using T = decltype(element);
    const auto* a = reinterpret_cast<const T*>(got.data());
    const auto* b = reinterpret_cast<const T*>(expected.data());
    for (size_t i = 0; i < got.size() / sizeof(T); ++i) {
      const double tolerance = std::is_integral_v<T> ? 0
                               : sizeof(T) == 2      ? 0.1
                               : sizeof(T) == 4      ? 1e-4
                                                     : 1e-12;
      ASSERT_NEAR(
          static_cast<double>(static_cast<std::conditional_t<HalfFloat<T>, float, T>>(a[i])),
          static_cast<double>(static_cast<std::conditional_t<HalfFloat<T>, float, T>>(b[i])),
          tolerance * std::max(1., std::abs(static_cast<double>(
                                       static_cast<std::conditional_t<HalfFloat<T>, float, T>>(b[i])))))
          << at << ", element " << i;
    }
  });
}

size_t large_count(Type type, double scale) {
  return static_cast<size_t>(scale * 300'000) / size_of(type) + 1;
}

// What the ranks put in, and its serial fold.
struct SumCase {
  Type type;
  size_t count;
  std::vector<Bytes> rows;
  Bytes sum;
  SumCase(Type t, size_t n, int ranks, Reduction reduction = Reduction::sum)
      : type(t), count(n), rows(rows_of(t, n, ranks, n + 1)), sum(serial_fold(rows, t, reduction)) {}
};

// Types and counts for a group. With large counts, f32 and one more type, another one for each size of the
// group.
std::vector<std::pair<Type, size_t>> types_and_counts(int ranks, double scale) {
  std::vector<std::pair<Type, size_t>> pairs;
  for (const Type type : kAllTypes)
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1025}})
      pairs.emplace_back(type, count);
  for (const Type type : {Type::f32, kAllTypes[ranks % kTypes]})
    pairs.emplace_back(type, large_count(type, scale));
  return pairs;
}

std::vector<SumCase> sum_cases(int ranks, double scale) {
  std::vector<SumCase> cases;
  for (const auto& [type, count] : types_and_counts(ranks, scale)) cases.emplace_back(type, count, ranks);
  return cases;
}

// Runs f(group, ranks) for groups of 1 to 9 ranks.
void for_groups(Conformance& test, const std::function<void(const RankGroup&, int)>& f) {
  for (const int ranks : test.sizes()) {
    const auto group = test.make(ranks);
    ASSERT_EQ(group.size(), static_cast<size_t>(ranks));
    f(group, ranks);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace

std::vector<unsigned char> test_data(Type type, size_t count, int rank, uint64_t seed) {
  // splitmix64: short, because sanitizers make every step slow.
  uint64_t state = seed * 1000 + static_cast<uint64_t>(rank);
  const auto random = [&state] {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  constexpr size_t kPeriod = 4093;
  Bytes bytes(std::min(count, kPeriod) * size_of(type));
  visit_conformance_type(type, [&](auto element) {
    using T = decltype(element);
    for (size_t i = 0; i < std::min(count, kPeriod); ++i) {
      T value;
      const uint64_t bits = random();
      if constexpr (std::is_integral_v<T>)
        value = static_cast<T>(bits);
      else
        value = static_cast<T>(static_cast<float>(static_cast<double>(bits % 65521) / 32768. - 1.));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return test::repeated(std::move(bytes), count * size_of(type));
}

std::vector<unsigned char> serial_fold(const std::vector<std::vector<unsigned char>>& rows, Type type,
                                       Reduction reduction) {
  Bytes out = rows[0];
  std::vector<const void*> inputs;
  for (const auto& row : rows) inputs.push_back(row.data());
  fold_ranks(out.data(), inputs.data(), static_cast<int>(rows.size()), out.size() / size_of(type), type,
             reduction);
  return out;
}

TEST_P(Conformance, KnowsItsRanks) {
  for_groups(*this, [&](const auto& group, int ranks) {
    std::vector<Bytes> hosts(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      if (group[static_cast<size_t>(r)] == nullptr) continue;
      const Communicator& member = *group[static_cast<size_t>(r)];
      EXPECT_EQ(member.rank(), r);
      EXPECT_EQ(member.size(), ranks);
      EXPECT_FALSE(member.type().empty());
      EXPECT_FALSE(member.host(0).empty());
      for (const int none : {-1, ranks, 100'000'000}) EXPECT_THROW(member.host(none), InvalidArgument);
      for (int of = 0; of < ranks; ++of)
        for (const char c : member.host(of) + "\n")
          hosts[static_cast<size_t>(r)].push_back(static_cast<unsigned char>(c));
      EXPECT_GT(member.default_timeout_ms(), 0);
      EXPECT_EQ(member.failure(), nullptr);
    }
    exchange_between_processes(hosts);
    for (const Bytes& of_rank : hosts) EXPECT_EQ(of_rank, hosts[0]) << "all ranks name the same hosts";
  });
}

TEST_P(Conformance, AllreduceIsTheSerialFold) {
  for_groups(*this, [&](const auto& group, int ranks) {
    const auto cases = sum_cases(ranks, GetParam().size_scale);
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (const SumCase& c : cases) {
        Bytes in = c.rows[static_cast<size_t>(rank)], out = fresh(in.size());
        member.allreduce(in.data(), out.data(), c.count, c.type);
        EXPECT_EQ(out, c.sum) << where("allreduce", c.type, c.count, rank, ranks);
        EXPECT_EQ(in, c.rows[static_cast<size_t>(rank)]) << "the input is unchanged";
        member.allreduce(in.data(), in.data(), c.count, c.type);
        EXPECT_EQ(in, c.sum) << where("allreduce in place", c.type, c.count, rank, ranks);
      }
    });
  });
}

TEST_P(Conformance, AllreduceOfMegabytesIsTheSerialFold) {
  if (!GetParam().adds_megabytes) GTEST_SKIP() << "another case of this transport does it";
  const auto check = [&](int ranks, size_t count) {
    const SumCase c(Type::f32, count, ranks);
    expect_ranks(make(ranks), [&](int rank, Communicator& member) {
      Bytes sum = c.rows[static_cast<size_t>(rank)];
      member.allreduce(sum.data(), sum.data(), c.count, c.type);
      EXPECT_TRUE(sum == c.sum) << where("allreduce in place", c.type, c.count, rank, ranks);
    });
  };
  for (const int ranks : sizes({2, 3})) check(ranks, size_t{1} << 20);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they take half a minute
  for (const int ranks : sizes({2})) check(ranks, (size_t{16} << 20) + 1);
#endif
}

TEST_P(Conformance, AllreduceTakesMinimaAndMaxima) {
  for_groups(*this, [&](const auto& group, int ranks) {
    for (const Reduction reduction : {Reduction::min, Reduction::max}) {
      const SumCase few(Type::i8, 3, ranks, reduction), many(Type::f32, 40'001, ranks, reduction);
      expect_ranks(group, [&](int rank, Communicator& member) {
        for (const SumCase* const c : {&few, &many}) {
          Bytes out = fresh(c->sum.size());
          CallOptions options;
          options.reduction = reduction;
          member.allreduce(c->rows[static_cast<size_t>(rank)].data(), out.data(), c->count, c->type, options);
          EXPECT_EQ(out, c->sum) << where(to_string(reduction), c->type, c->count, rank, ranks);
        }
      });
    }
  });
}

TEST_P(Conformance, AllreduceInAnyOrderIsTheSameOnAllRanks) {
  for_groups(*this, [&](const auto& group, int ranks) {
    std::vector<SumCase> cases;
    for (const Type type : {Type::f32, Type::f64, Type::bf16, Type::f16, Type::i32})
      cases.emplace_back(type, 5, ranks);
    cases.emplace_back(Type::f32, 10'007, ranks);
    cases.emplace_back(Type::f32, large_count(Type::f32, GetParam().size_scale), ranks);
    std::vector<std::vector<Bytes>> results(cases.size(), std::vector<Bytes>(static_cast<size_t>(ranks)));
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const SumCase& c = cases[i];
        Bytes out = fresh(c.sum.size());
        CallOptions options;
        options.order = Order::any;
        member.allreduce(c.rows[static_cast<size_t>(rank)].data(), out.data(), c.count, c.type, options);
        if (rank == 0)
          expect_near(out, c.sum, c.type, where("allreduce in any order", c.type, c.count, rank, ranks));
        results[i][static_cast<size_t>(rank)] = std::move(out);
      }
    });
    for (auto& result : results) {
      exchange_between_processes(result);
      for (const Bytes& of_rank : result) EXPECT_EQ(of_rank, result[0]) << "all ranks get equal results";
    }
  });
}

TEST_P(Conformance, ReduceScatterIsASliceOfTheSerialFold) {
  for_groups(*this, [&](const auto& group, int ranks) {
    const auto cases = sum_cases(ranks, GetParam().size_scale);
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (const SumCase& c : cases) {
        const Slice slice = slice_of(c.count, ranks, rank);
        const auto* begin = c.sum.data() + slice.begin * size_of(c.type);
        const Bytes expected(begin, begin + slice.count * size_of(c.type));
        Bytes in = c.rows[static_cast<size_t>(rank)], out = fresh(expected.size());
        member.reduce_scatter(in.data(), out.data(), c.count, c.type);
        EXPECT_EQ(out, expected) << where("reduce_scatter", c.type, c.count, rank, ranks);
        EXPECT_EQ(in, c.rows[static_cast<size_t>(rank)]) << "the input is unchanged";
        unsigned char* const place = in.data() + slice.begin * size_of(c.type);
        member.reduce_scatter(in.data(), place, c.count, c.type);
        EXPECT_EQ(Bytes(place, place + expected.size()), expected)
            << where("reduce_scatter into its place", c.type, c.count, rank, ranks);
        in = c.rows[static_cast<size_t>(rank)];
        member.reduce_scatter(in.data(), in.data(), c.count, c.type);
        in.resize(expected.size());
        EXPECT_EQ(in, expected) << where("reduce_scatter in place", c.type, c.count, rank, ranks);
      }
    });
  });
}

TEST_P(Conformance, AllgatherJoinsTheSlices) {
  for_groups(*this, [&](const auto& group, int ranks) {
    const auto pairs = types_and_counts(ranks, GetParam().size_scale);
    std::vector<Bytes> wholes;
    for (const auto& [type, count] : pairs) wholes.push_back(test_data(type, count, 0, count + 3));
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Type type = pairs[i].first;
        const size_t count = pairs[i].second;
        const Slice slice = slice_of(count, ranks, rank);
        const auto* begin = wholes[i].data() + slice.begin * size_of(type);
        const Bytes in(begin, begin + slice.count * size_of(type));
        Bytes out = fresh(wholes[i].size());
        member.allgather(in.data(), out.data(), count, type);
        EXPECT_EQ(out, wholes[i]) << where("allgather", type, count, rank, ranks);
        out = fresh(wholes[i].size());
        unsigned char* const place = out.data() + slice.begin * size_of(type);
        std::copy(in.begin(), in.end(), place);
        member.allgather(place, out.data(), count, type);
        EXPECT_EQ(out, wholes[i]) << where("allgather from its place", type, count, rank, ranks);
        out = fresh(wholes[i].size());
        std::copy(in.begin(), in.end(), out.begin());
        member.allgather(out.data(), out.data(), count, type);
        EXPECT_EQ(out, wholes[i]) << where("allgather in place", type, count, rank, ranks);
      }
    });
  });
}

TEST_P(Conformance, BroadcastCopiesTheRoot) {
  for_groups(*this, [&](const auto& group, int ranks) {
    const auto pairs = types_and_counts(ranks, GetParam().size_scale);
    std::vector<Bytes> data;
    for (const auto& [type, count] : pairs) data.push_back(test_data(type, count, 0, count + 4));
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Type type = pairs[i].first;
        const size_t count = pairs[i].second;
        const int root = static_cast<int>(i) % ranks;
        Bytes out = fresh(data[i].size());
        if (rank == root && i / static_cast<size_t>(ranks) % 2 == 1) {
          out = data[i];  // in place
          member.broadcast(out.data(), out.data(), count, type, root);
        } else {
          member.broadcast(rank == root ? data[i].data() : nullptr, out.data(), count, type, root);
        }
        EXPECT_EQ(out, data[i]) << where("broadcast", type, count, rank, ranks) << " from " << root;
      }
    });
  });
}

TEST_P(Conformance, AllToAllTransposesTheBlocks) {
  for_groups(*this, [&](const auto& group, int ranks) {
    for (const Type type : {Type::u8, Type::f32, Type::f64})
      for (const size_t count :
           {size_t{0}, size_t{1}, size_t{33}, large_count(type, GetParam().size_scale / 8)}) {
        const size_t block = count * size_of(type), size = static_cast<size_t>(ranks);
        const auto rows = rows_of(type, count * size, ranks, count + 5);
        expect_ranks(group, [&](int rank, Communicator& member) {
          const size_t me = static_cast<size_t>(rank);
          Bytes in = rows[me], out = fresh(in.size());
          member.all_to_all(in.data(), out.data(), count, type);
          Bytes expected;
          for (const Bytes& row : rows)
            expected.insert(expected.end(), row.begin() + static_cast<ptrdiff_t>(me * block),
                            row.begin() + static_cast<ptrdiff_t>((me + 1) * block));
          EXPECT_EQ(out, expected) << where("all_to_all", type, count, rank, ranks);
          member.all_to_all(in.data(), in.data(), count, type);
          EXPECT_EQ(in, expected) << where("all_to_all in place", type, count, rank, ranks);
        });
      }
  });
}

TEST_P(Conformance, SendMatchesReceive) {
  for_groups(*this, [&](const auto& group, int ranks) {
    if (ranks == 1) return;
    for (const Type type : {Type::u8, Type::f32})
      for (const size_t count : {size_t{0}, size_t{7}, large_count(type, GetParam().size_scale)})
        expect_ranks(group, [&](int rank, Communicator& member) {
          // Around the ring: rank 0 sends first, the others after they have received.
          const Bytes data = test_data(type, count, 0, count + 6);
          Bytes got = fresh(data.size());
          if (rank == 0) member.send(data.data(), count, type, 1);
          member.receive(got.data(), count, type, (rank + ranks - 1) % ranks);
          EXPECT_EQ(got, data) << where("receive", type, count, rank, ranks);
          if (rank != 0) member.send(got.data(), count, type, (rank + 1) % ranks);
        });
  });
}

TEST_P(Conformance, BarrierWaitsForAll) {
  for_groups(*this, [&](const auto& group, int ranks) {
    const SharedCounters reached(ranks);
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (int round = 1; round <= 20; ++round) {
        reached[rank] = round;
        member.barrier();
        for (int other = 0; other < ranks; ++other) EXPECT_GE(reached[other].load(), round);
        member.barrier();
      }
    });
  });
}

}  // namespace mx::comm
