#include <cstring>

#include "comm/check_rank.h"
#include "comm/queued_communicator.h"
#include "comm/transports.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

/// The group of a process that is alone. It has no socket. Its thread starts with the first call of start().
class GroupOfOne final : public QueuedCommunicator {
 public:
  GroupOfOne(std::string host, int64_t timeout_ms) : host_(std::move(host)), timeout_ms_(timeout_ms) {}
  ~GroupOfOne() override { finish_calls(); }

  const std::string& type() const override {
    static const std::string name = "one";
    return name;
  }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string host(int rank) const override {
    check_rank("host", rank, 1);
    return host_;
  }
  int64_t default_timeout_ms() const override { return timeout_ms_; }

 protected:
  void execute(const Request& request, Deadline) override {
    // Every collective of one rank copies its input. With this size no rank has another to send to.
    const size_t bytes = request.count * size_of(request.type);
    if (bytes > 0 && request.in != nullptr && request.out != nullptr && request.in != request.out)
      std::memmove(request.out, request.in, bytes);
  }
  void interrupt(std::exception_ptr) override {}

 private:
  const std::string host_;
  const int64_t timeout_ms_;
};

}  // namespace

std::shared_ptr<Communicator> make_group_of_one(const std::string& host, int64_t timeout_ms) {
  return std::make_shared<GroupOfOne>(host, timeout_ms);
}

}  // namespace mx::comm
