// DistServerStore: comparison of values between the workers.
#include <cstring>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/call_check.h"
#include "kvstore/checksums.h"
#include "kvstore/collective_op.h"
#include "kvstore/dist_server.h"

namespace mx::detail {

// Each worker contributes its own checksums and zeros in place of those of the others, so the sum over all
// workers has the checksums of all.
void DistServerStore::check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                  const NDArray& token, const KVOptions& options) {
  check_lengths("check_equal", keys.size(), values.size(), "a value");
  MX_CHECK(type_ != "dist_async", InvalidState,
           "[check_equal] expected a store in which all workers have the same values (\"dist_sync\"), got "
           "\"dist_async\": its workers pull at different times");
  if (size() == 1 || keys.empty()) return;
  const CallScope scope(options);
  const auto table = std::make_shared<ChecksumTable>(keys, values, size(), options.where);
  const NDArray sums = zeros({static_cast<int64_t>(table->sums.size())}, i64);
  std::vector<Var> reads;
  for (const NDArray& value : table->values) reads.push_back(value.var());
  current_engine().push(
      [table, sums, own = rank()] {
        table->add(own);
        std::memcpy(memory_of(sums), table->sums.data(), sums.bytes());
      },
      {.reads = reads, .updates = {sums.var()}, .name = "check_equal"}, options.where);
  KVOptions as_sum = options;
  as_sum.reduce = KVReduce::sum;
  allreduce({KVKey("checksums of parameters")}, {Values(sums)}, {sums}, as_sum);
  current_engine().push(
      [table, sums] {
        std::memcpy(table->sums.data(), memory_of(sums), sums.bytes());
        if (const std::exception_ptr error = table->error()) std::rethrow_exception(error);
      },
      {.reads = {sums.var()}, .updates = {token.var()}, .name = "check_equal"}, options.where);
}

}  // namespace mx::detail
