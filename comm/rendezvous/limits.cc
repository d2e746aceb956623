#include "comm/rendezvous/limits.h"

#include "comm/net/bytes.h"
#include "comm/rendezvous.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {

std::string epoch_key(int64_t epoch, std::string_view key) {
  return std::to_string(epoch) + "/" + std::string(key);
}

void check_entry(std::string_view key, std::string_view value) {
  MX_CHECK(!key.empty() && key.size() <= Rendezvous::kLongestKey, InvalidArgument,
           "[rendezvous] expected a key of 1 to ", Rendezvous::kLongestKey, " bytes, got ", key.size());
  MX_CHECK(value.size() <= Rendezvous::kLongestValue, InvalidArgument,
           "[rendezvous] expected a value of at most ", Rendezvous::kLongestValue, " bytes for key ",
           in_quotes(key), ", got ", value.size());
}

}  // namespace mx::comm
