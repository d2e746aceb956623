#include "comm/call_comparison.h"

#include <utility>

#include "comm/algorithms.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {

CallComparison::CallComparison(std::shared_ptr<Transport> messages)
    : messages_(std::move(messages)), workspace_(messages_->size()), numbers_(messages_->size()) {}

void CallComparison::compare(const Request& request, Deadline deadline) {
  Call call(*messages_, workspace_, request, numbers_.next(request), 0, deadline);
  try {
    if (is_between_two(request)) {
      call.send_header(request.peer);
      call.check_header(request.peer, call.receive_header(request.peer));
      call.finish();
    } else if (messages_->size() <= kMostDirect) {
      call.exchange_headers();
      call.finish();
    } else {
      // A rank passes its header on only after it has compared those of the ranks before it. So a rank that
      // leaves the barrier knows that all are in the same call.
      barrier_dissemination(call);
    }
  } catch (const ProtocolError&) {
    call.give_up(std::current_exception(), true);
    throw;
  } catch (...) {
    call.give_up(std::current_exception(), false);
    std::rethrow_exception(rewrite_current_exception(
        [&](const std::string& text) { return mx::detail::concat("[", describe(request), "] ", text); }));
  }
}

void CallComparison::fail(const Request& request, const std::exception_ptr& error) noexcept {
  Call(*messages_, workspace_, request, 0, 0, Deadline::after_ms(0)).give_up(error, true);
}

}  // namespace mx::comm
