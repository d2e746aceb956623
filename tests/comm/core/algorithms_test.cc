// Each algorithm of allreduce, with sizes of one and of several pieces, against the serial fold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/algorithms.h"
#include "comm/threads/thread_group.h"
#include "tests/comm/conformance.h"
#include "tests/comm/repeated.h"

namespace mx::comm {
namespace {

struct AlgorithmCase {
  Algorithm algorithm;
  int ranks_per_host;
};

void PrintTo(const AlgorithmCase& c, std::ostream* out) { *out << to_string(c.algorithm); }

class AllreduceAlgorithm : public testing::TestWithParam<AlgorithmCase> {
 protected:
  static std::vector<std::shared_ptr<Communicator>> make_group(int ranks, uint64_t delay_seed) {
    ThreadTransportOptions options;
    options.delay_seed = delay_seed;
    for (int rank = 0; rank < ranks; ++rank)
      options.hosts.push_back("host" + std::to_string(rank / GetParam().ranks_per_host));
    return make_thread_group(ranks, 60'000, options, GetParam().algorithm);
  }

  static std::vector<unsigned char> row_of(Type type, size_t count, int rank) {
    if (type != Type::f32) return test_data(type, count, rank, 3);
    // Whole numbers are exact in every order of sums.
    std::vector<unsigned char> row;
    for (const unsigned char byte : test_data(Type::u8, std::min<size_t>(count, 4093), rank, 3)) {
      const float value = static_cast<float>(static_cast<int>(byte) - 100);
      row.resize(row.size() + sizeof value);
      std::memcpy(row.data() + row.size() - sizeof value, &value, sizeof value);
    }
    return test::repeated(std::move(row), count * sizeof(float));
  }

  // One group after the other, because ThreadSanitizer takes long to start threads.
  static void expect_sums(int ranks, const std::vector<std::pair<Type, size_t>>& sums, uint64_t delay_seed) {
    const auto group = make_group(ranks, delay_seed);
    std::vector<std::vector<std::vector<unsigned char>>> rows(sums.size());
    std::vector<std::vector<unsigned char>> expected;
    for (size_t i = 0; i < sums.size(); ++i) {
      for (int rank = 0; rank < ranks; ++rank) rows[i].push_back(row_of(sums[i].first, sums[i].second, rank));
      expected.push_back(serial_fold(rows[i], sums[i].first));
    }
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (size_t i = 0; i < sums.size(); ++i)
        for (const Order order : {Order::rank, Order::any})
          for (const bool in_place : {false, true}) {
            const auto [type, count] = sums[i];
            auto in = rows[i][static_cast<size_t>(rank)];
            std::vector<unsigned char> separate(in.size(), 0xA5);
            auto& out = in_place ? in : separate;
            CallOptions options;
            options.order = order;
            member.allreduce(in.data(), out.data(), count, type, options);
            EXPECT_EQ(out, expected[i]) << to_string(GetParam().algorithm) << ", " << count << " x "
                                        << to_string(type) << " on rank " << rank << " of " << ranks
                                        << ", order " << to_string(order) << (in_place ? ", in place" : "");
          }
    });
  }
};

TEST_P(AllreduceAlgorithm, AddsSmallCounts) {
  std::vector<std::pair<Type, size_t>> sums;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{8}, size_t{9}, size_t{1001}})
    for (const Type type : {Type::i32, Type::u8, Type::f32}) sums.emplace_back(type, count);
  for (int ranks = 1; ranks <= 9; ++ranks) expect_sums(ranks, sums, 0);
}

TEST_P(AllreduceAlgorithm, AddsManyPieces) {
  for (const int ranks : {1, 2, 3}) expect_sums(ranks, {{Type::f32, 2 * kPieceBytes + 3}}, 0);
  expect_sums(4, {{Type::i64, kPieceBytes + 1}}, 0);
}

TEST_P(AllreduceAlgorithm, AddsWithRandomPauses) {
  for (const uint64_t seed : {1, 2, 3})
    for (const int ranks : {2, 3, 4}) expect_sums(ranks, {{Type::f32, kPieceBytes + 11}}, seed);
}

INSTANTIATE_TEST_SUITE_P(Threads, AllreduceAlgorithm,
                         testing::Values(AlgorithmCase{Algorithm::gather, 9},
                                         AlgorithmCase{Algorithm::direct, 9},
                                         AlgorithmCase{Algorithm::ring, 9},
                                         AlgorithmCase{Algorithm::two_level, 2},
                                         AlgorithmCase{Algorithm::two_level, 3}),
                         [](const auto& parameter) {
                           return std::string(to_string(parameter.param.algorithm)) +
                                  std::to_string(parameter.param.ranks_per_host);
                         });

}  // namespace
}  // namespace mx::comm
