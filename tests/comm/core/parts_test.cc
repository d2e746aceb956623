#include "comm/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/comm/conformance.h"

namespace mx::comm {
namespace {

using Bytes = std::vector<unsigned char>;

// Delivers the parts of all ranks, as MPI or NCCL would. Each must meet one of equal size from its peer.
void deliver(const std::vector<std::vector<Part>>& parts) {
  for (size_t from = 0; from < parts.size(); ++from)
    for (const Part& sent : parts[from]) {
      const Part& received = parts[static_cast<size_t>(sent.peer)][from];
      ASSERT_EQ(received.peer, static_cast<int>(from));
      ASSERT_EQ(received.out_bytes, sent.in_bytes);
      if (sent.in_bytes > 0) std::memcpy(received.out, sent.in, sent.in_bytes);
    }
}

TEST(Parts, SlicesMeetAtTheirOwnersAndGatherToTheWhole) {
  for (const int ranks : {1, 2, 3, 5})
    for (const size_t count : {0, 1, 4, 17}) {
      Request request;
      request.count = count;
      request.type = Type::i32;
      std::vector<Bytes> rows, received, gathered(static_cast<size_t>(ranks), Bytes(count * 4));
      std::vector<std::vector<Part>> slices, gathers;
      for (int r = 0; r < ranks; ++r) {
        rows.push_back(test_data(Type::i32, count, r, 3));
        received.emplace_back(slice_of(count, ranks, r).count * 4 * static_cast<size_t>(ranks));
      }
      for (size_t r = 0; r < rows.size(); ++r)
        slices.push_back(
            parts_of_slices(request, static_cast<int>(r), ranks, rows[r].data(), received[r].data()));
      deliver(slices);
      for (size_t r = 0; r < rows.size(); ++r) {
        const Slice mine = slice_of(count, ranks, static_cast<int>(r));
        for (size_t from = 0; from < rows.size(); ++from)
          EXPECT_TRUE(std::equal(received[r].begin() + static_cast<ptrdiff_t>(from * mine.count * 4),
                                 received[r].begin() + static_cast<ptrdiff_t>((from + 1) * mine.count * 4),
                                 rows[from].begin() + static_cast<ptrdiff_t>(mine.begin * 4)));
        // Rank 0's values, each slice from its owner.
        gathers.push_back(
            parts_of_gather(request, static_cast<int>(r), ranks, received[r].data(), gathered[r].data()));
      }
      deliver(gathers);
      for (const Bytes& whole : gathered) EXPECT_EQ(whole, rows[0]) << ranks << " ranks, " << count;
    }
}

TEST(Parts, BlocksGoToTheirRanks) {
  Request request;
  request.count = 3;
  request.type = Type::u8;
  std::vector<Bytes> in, out(4, Bytes(12));
  std::vector<std::vector<Part>> parts;
  for (int r = 0; r < 4; ++r) {
    in.push_back({});
    for (int i = 0; i < 12; ++i) in.back().push_back(static_cast<unsigned char>(16 * r + i));
  }
  for (size_t r = 0; r < 4; ++r)
    parts.push_back(parts_of_all_to_all(request, 4, in[r].data(), out[r].data()));
  deliver(parts);
  for (size_t r = 0; r < 4; ++r)
    for (size_t from = 0; from < 4; ++from)
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(out[r][from * 3 + i], 16 * from + r * 3 + i);
}

}  // namespace
}  // namespace mx::comm
