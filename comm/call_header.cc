#include "comm/call_header.h"

#include <algorithm>
#include <cstring>

#include "comm/hash.h"
#include "comm/net/bytes.h"

namespace mx::comm {

namespace {

void set_text(CallHeader& header, std::string_view text) {
  header.text_bytes = static_cast<uint16_t>(std::min(text.size(), CallHeader::kLongestText));
  header.text_hash = hash_text(text);
  std::memcpy(header.text, text.data(), header.text_bytes);
}

}  // namespace

CallHeader CallHeader::of(const Request& request, uint64_t number, uint8_t algorithm) {
  CallHeader header;
  header.collective = static_cast<uint8_t>(request.collective);
  header.number = number;
  header.algorithm = algorithm;
  if (request.collective != Collective::barrier) {
    header.type = static_cast<uint8_t>(request.type);
    header.count = request.count;
  }
  if (request.collective == Collective::allreduce || request.collective == Collective::reduce_scatter) {
    header.reduction = static_cast<uint8_t>(request.options.reduction);
    header.order = static_cast<uint8_t>(request.options.order);
  }
  if (request.collective == Collective::broadcast) header.peer = request.peer;
  set_text(header, request.options.what);
  return header;
}

CallHeader CallHeader::failure(std::string_view text) {
  CallHeader header;
  header.failed = 1;
  set_text(header, text);
  return header;
}

bool CallHeader::matches(const CallHeader& other) const {
  const auto send = static_cast<uint8_t>(Collective::send),
             receive = static_cast<uint8_t>(Collective::receive);
  const bool same_kind = collective == send || collective == receive
                             ? collective + other.collective == send + receive
                             : collective == other.collective;
  return same_kind && magic == other.magic && number == other.number && type == other.type &&
         reduction == other.reduction && order == other.order && count == other.count && peer == other.peer &&
         algorithm == other.algorithm && text_hash == other.text_hash && failed == 0 && other.failed == 0;
}

std::string CallHeader::describe() const {
  const std::string shown(text, std::min<size_t>(text_bytes, kLongestText));
  if (failed != 0) return shown;
  if (magic != kMagic || collective > static_cast<uint8_t>(Collective::receive) || type >= kTypes ||
      reduction > static_cast<uint8_t>(Reduction::max) || order > static_cast<uint8_t>(Order::any) ||
      text_bytes > kLongestText)
    return "bytes that describe no call";
  Request request;
  request.collective = static_cast<Collective>(collective);
  request.count = count;
  request.type = static_cast<Type>(type);
  request.peer = peer;
  request.options.order = static_cast<Order>(order);
  request.options.reduction = static_cast<Reduction>(reduction);
  request.options.what = shown;
  std::string words = comm::describe(request);
  if (request.collective == Collective::send || request.collective == Collective::receive) {
    // The header of a send does not say to whom; the message around this text does.
    words = std::string(to_string(request.collective)) + " of " + std::to_string(count) + " x " +
            to_string(request.type);
    if (!shown.empty()) (words += ' ') += in_quotes(shown);
  }
  return "call " + std::to_string(number) + ", " + words;
}

}  // namespace mx::comm
