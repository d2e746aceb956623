#include "comm/shm/bootstrap.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/in_steps.h"
#include "comm/net/bytes.h"
#include "comm/net/secret.h"
#include "comm/net/shortage.h"
#include "comm/net/socket.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm::shm {
namespace {

constexpr size_t kTokenBytes = 64;  // of random_secret()
// Connections that have not shown the token, beyond the number of ranks.
constexpr size_t kMostStrangers = 64;
constexpr size_t kLongestReason = 1000;
constexpr size_t kMostFiles = 250;   // in one message; the kernel takes 253
constexpr int64_t kPollMs = 50;      // how often rank 0 looks whether another rank has given up
constexpr int64_t kExplainMs = 500;  // how long a rank waits for rank 0 to say why it gave up

std::string rejection_key(const std::string& key) { return key + "/shm-rejected/"; }
// Where rank 0 says whom it has waited for in vain: numbers of ranks, or "failed " and its own error.
std::string missing_key(const std::string& key) { return key + "/shm-missing"; }
constexpr std::string_view kFailed = "failed ";

// Messages of one byte between rank 0 and a rank that has its files.
constexpr char kMapped = 'm';   // to rank 0: it uses them
constexpr char kWho = 'w';      // to rank 0: its time has passed, who is missing?
constexpr char kRelease = 'y';  // from rank 0: all ranks use them
// The answer to kWho: this byte, and numbers of ranks.
constexpr char kMissing = 'n';

struct Hello {
  char token[kTokenBytes];
  int32_t rank;
};

struct Answer {
  uint64_t window_bytes;
  // Numbers of descriptors that come with the message: the region, perhaps the arena, and the bells.
  uint32_t files, bells;
};

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int number_of(int rank, const Joining& joining) {
  return joining.numbers.empty() ? rank : joining.numbers[static_cast<size_t>(rank)];
}
// "rank 2", by its number in the whole job.
std::string name_of(int rank, const Joining& joining) {
  return "rank " + std::to_string(number_of(rank, joining));
}

int wait_ms(Deadline deadline) { return static_cast<int>(std::min<int64_t>(deadline.left_ms(), kPollMs)); }

void send_files(int socket, const SharedFiles& files) {
  std::vector<int> descriptors = {files.region.get()};
  if (files.arena) descriptors.push_back(files.arena.get());
  for (const Fd& bell : files.bells) descriptors.push_back(bell.get());
  MX_CHECK(descriptors.size() <= kMostFiles, CommunicationError, "[shm] expected to pass at most ",
           kMostFiles, " descriptors to another rank, got ", descriptors.size());
  Answer answer{};
  answer.window_bytes = files.window_bytes;
  answer.files = static_cast<uint32_t>(descriptors.size());
  answer.bells = static_cast<uint32_t>(files.bells.size());
  iovec part{&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(answer.files * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(answer.files * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), answer.files * sizeof(int));
  MX_CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(answer)),
           CommunicationError,
           "[shm] expected to pass the shared memory to another rank, got: ", std::strerror(errno));
}

[[noreturn]] void fail_without(const std::vector<int>& missing, const Joining& joining) {
  std::string text;
  for (const int rank : missing) text += (text.empty() ? "" : ", ") + name_of(rank, joining);
  if (joining.noticed_timeout && !missing.empty()) joining.noticed_timeout(number_of(missing[0], joining));
  throw Timeout("[shm] expected all ranks of this host to join within the time limit, still waiting for " +
                text);
}

// "1 5 7"
std::vector<int> read_ranks(const std::string& said) {
  std::vector<int> ranks;
  std::istringstream text(said);
  for (int rank = 0; text >> rank;) ranks.push_back(rank);
  return ranks;
}

// Rank 0 has closed the connection. Throws what it said about that, or what the job knows of it. Returns if
// there is nothing.
void look_for_cause(const Joining& joining) {
  std::string said;
  try {
    said = in_steps(joining.check, Deadline::after_ms(kExplainMs), [&](Deadline moment) {
      return joining.rendezvous.get(missing_key(joining.key), moment);
    });
  } catch (const Timeout&) {
  }
  if (joining.check) joining.check();
  MX_CHECK(!said.starts_with(kFailed), CommunicationError, "[shm] no shared memory on ", name_of(0, joining),
           ": ", said.substr(std::min(kFailed.size(), said.size())));
  const std::vector<int> missing = read_ranks(said);
  if (!missing.empty()) fail_without(missing, joining);
}

SharedFiles receive_files(int socket, const Joining& joining) {
  Answer answer{};
  iovec part{&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  std::vector<Fd> received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      received.emplace_back(fd);
    }
  }
  const bool whole = bytes == static_cast<ssize_t>(sizeof(answer)) && received.size() == answer.files &&
                     answer.bells < answer.files && answer.files - answer.bells <= 2;
  MX_CHECK(bytes <= 0 || (message.msg_flags & MSG_CTRUNC) == 0, CommunicationError, "[shm] expected ",
           answer.files, " descriptors from ", name_of(0, joining), ", got ", received.size(),
           ": this process has too many open files (ulimit -n)");
  if (!whole) look_for_cause(joining);
  MX_CHECK(whole, CommunicationError, "[shm] expected the shared memory from ", name_of(0, joining),
           ", which closed the connection instead");
  SharedFiles files;
  files.window_bytes = answer.window_bytes;
  const size_t others = received.size() - answer.bells;
  files.region = std::move(received[0]);
  if (others > 1) files.arena = std::move(received[1]);
  for (size_t bell = others; bell < received.size(); ++bell) files.bells.push_back(std::move(received[bell]));
  return files;
}

Fd new_socket(int flags) {
  Fd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  MX_CHECK(made, CommunicationError, "[shm] expected an AF_UNIX socket, got: ", std::strerror(errno));
  return made;
}

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

// Connects without waiting in connect(), which knows no deadline: it waits while the backlog of rank 0 is
// full.
Fd connect_to_first(const Address& server, const Joining& joining) {
  constexpr int kConnectAgainMs = 10;
  Fd connection = new_socket(SOCK_NONBLOCK);
  while (connect(connection.get(), reinterpret_cast<const sockaddr*>(&server.name), server.length) != 0) {
    const int problem = errno;
    if (problem != EAGAIN && problem != EINTR) {
      look_for_cause(joining);
      throw CommunicationError(
          mx::detail::concat("[shm] expected to reach ", name_of(0, joining),
                             " through an AF_UNIX socket of this host, got: ", std::strerror(problem)));
    }
    if (joining.check) joining.check();
    if (joining.deadline.passed()) fail_without({0}, joining);
    poll(nullptr, 0, kConnectAgainMs);
  }
  const int flags = fcntl(connection.get(), F_GETFL);
  MX_CHECK(flags >= 0 && fcntl(connection.get(), F_SETFL, flags & ~O_NONBLOCK) == 0, CommunicationError,
           "[shm] expected a socket that waits, got: ", std::strerror(errno));
  return connection;
}

// Binds to an abstract address that the kernel chooses. It vanishes with the socket.
std::string listen_anywhere(int socket) {
  Address address;
  address.name.sun_family = AF_UNIX;
  auto* const name = reinterpret_cast<sockaddr*>(&address.name);
  bool ok = bind(socket, name, sizeof(sa_family_t)) == 0 && listen(socket, 128) == 0;
  address.length = sizeof(address.name);
  ok = ok && getsockname(socket, name, &address.length) == 0 &&
       address.length > offsetof(sockaddr_un, sun_path);
  MX_CHECK(ok, CommunicationError, "[shm] expected an AF_UNIX address, got: ", std::strerror(errno));
  return {address.name.sun_path, address.length - offsetof(sockaddr_un, sun_path)};
}

}  // namespace

std::string to_text(const Offer& offer) { return "at " + to_hex(offer.address) + " " + offer.token; }

Offer parse_offer(const std::string& text, const std::string& from) {
  MX_CHECK(!text.starts_with("none "), CommunicationError, "[shm] no shared memory on ", from, ": ",
           text.substr(std::min<size_t>(5, text.size())));
  const std::string_view parts = text;
  const size_t space = parts.starts_with("at ") ? parts.find(' ', 3) : std::string_view::npos;
  std::optional<std::string> address;
  if (space != std::string_view::npos) address = from_hex(parts.substr(3, space - 3));
  const bool valid = address && !address->empty() && address->size() <= sizeof(sockaddr_un::sun_path) &&
                     parts.size() - space - 1 == kTokenBytes;
  MX_CHECK(valid, ProtocolError, "[shm] expected an address and a token from ", from, ", got ", text.size(),
           " bytes");
  return {*std::move(address), text.substr(space + 1)};
}

void refuse_files(const std::string& reason, const Joining& joining) {
  joining.rendezvous.put(joining.key + "/shm", "none " + reason.substr(0, kLongestReason));
}

void reject_files(int rank, const std::string& reason, const Joining& joining) {
  joining.rendezvous.put(rejection_key(joining.key) + std::to_string(number_of(rank, joining)),
                         reason.substr(0, kLongestReason));
}

namespace {

// The ranks as rank 0 sees them.
class FileServer {
 public:
  FileServer(const SharedFiles& files, int size, const std::string& token)
      : files_(files), token_(token), ranks_(static_cast<size_t>(size)) {}

  // Ranks send their token at once, so the oldest stranger is the least likely to be one.
  void add(Fd connection) {
    if (strangers_.size() >= kMostStrangers + ranks_.size()) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(connection));
  }
  bool complete() const {
    return std::all_of(ranks_.begin() + 1, ranks_.end(), [](const Rank& rank) { return rank.confirmed; });
  }

  std::vector<pollfd> waits() const {
    std::vector<pollfd> list;
    for (const Fd& stranger : strangers_) list.push_back({stranger.get(), POLLIN, 0});
    for (const Rank& rank : ranks_) list.push_back({rank.connection.get(), POLLIN, 0});
    return list;
  }

  // Handles what poll() has found in the list of waits().
  void handle(const std::vector<pollfd>& list) {
    const size_t strangers = strangers_.size();
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (list[strangers + r].revents == 0) continue;
      char byte = 0;
      if (recv(ranks_[r].connection.get(), &byte, 1, MSG_DONTWAIT) != 1)
        // A closed connection: the rank has ended, or will say in the rendezvous why it gave up.
        ranks_[r].connection = Fd();
      else if (byte == kMapped)
        ranks_[r].confirmed = true;
      else
        tell_missing(ranks_[r].connection);
    }
    for (size_t i = strangers; i-- > 0;)
      if (list[i].revents != 0) greet(i);
  }

  void release_all() {
    for (const Rank& rank : ranks_)
      if (rank.connection) ::send(rank.connection.get(), &kRelease, 1, MSG_NOSIGNAL);
  }

  std::vector<int> missing() const {
    std::vector<int> found;
    for (size_t r = 1; r < ranks_.size(); ++r)
      if (!ranks_[r].confirmed) found.push_back(static_cast<int>(r));
    return found;
  }
  std::string missing_text() const {
    std::string text;
    for (const int rank : missing()) text += std::to_string(rank) + ' ';
    return text;
  }

 private:
  struct Rank {
    Fd connection;
    bool confirmed = false;
  };

  void tell_missing(const Fd& connection) const {
    std::string text = kMissing + missing_text();
    // The message takes so many bytes. The digits that are left of a number would name another rank.
    if (text.size() > kLongestReason) text.resize(text.rfind(' ', kLongestReason - 1) + 1);
    ::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void greet(size_t index) {
    Fd connection = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<ptrdiff_t>(index));
    Hello hello{};
    const ssize_t bytes = recv(connection.get(), &hello, sizeof(hello), MSG_DONTWAIT);
    const bool valid = bytes == static_cast<ssize_t>(sizeof(hello)) && hello.rank > 0 &&
                       static_cast<size_t>(hello.rank) < ranks_.size() &&
                       CRYPTO_memcmp(hello.token, token_.data(), sizeof(hello.token)) == 0;
    if (!valid) return;
    Rank& rank = ranks_[static_cast<size_t>(hello.rank)];
    if (rank.connection) return;
    send_files(connection.get(), files_);
    rank.connection = std::move(connection);
  }

  const SharedFiles& files_;
  const std::string& token_;
  std::vector<Rank> ranks_;    // the first one, rank 0 itself, is not used
  std::vector<Fd> strangers_;  // connections that have not sent a message
};

// Learns of ranks that cannot use the files.
class Rejections {
 public:
  explicit Rejections(const Joining& joining) : rendezvous_(joining.rendezvous) {
    const auto rejected = [this](std::string_view entry, std::string_view reason) {
      std::lock_guard lock(mutex_);
      text_ = mx::detail::concat("rank ", std::string(entry.substr(entry.rfind('/') + 1)), ": ",
                                 std::string(reason));
    };
    watch_ = rendezvous_.watch(rejection_key(joining.key), rejected);
  }
  ~Rejections() { rendezvous_.unwatch(watch_); }
  Rejections(const Rejections&) = delete;
  Rejections& operator=(const Rejections&) = delete;

  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  Rendezvous& rendezvous_;
  uint64_t watch_ = 0;
  std::mutex mutex_;
  std::string text_;  // guarded by the mutex
};

[[noreturn]] void fail_for_want_of_descriptors(int problem, const Joining& joining) {
  const std::string text = mx::detail::concat(
      "[shm] expected a descriptor for the connection of a rank, got: ", std::strerror(problem),
      " (ulimit -n)");
  joining.rendezvous.put(missing_key(joining.key), std::string(kFailed) + text);
  throw CommunicationError(text);
}

}  // namespace

void pass_files(const SharedFiles& files, int size, const Joining& joining) {
  Fd listener;
  std::string address, token;
  try {
    listener = new_socket(SOCK_NONBLOCK);
    address = listen_anywhere(listener.get());
    token = random_secret();
  } catch (const Error& error) {
    refuse_files(error.what(), joining);
    throw;
  }
  joining.rendezvous.put(joining.key + "/shm", to_text({address, token}));

  Rejections rejections(joining);
  FileServer server(files, size, token);
  Shortage shortage;
  while (!server.complete()) {
    const std::string rejection = rejections.text();
    MX_CHECK(rejection.empty(), CommunicationError,
             "[shm] expected shared memory on all ranks, but it failed on ", rejection);
    if (joining.check) joining.check();
    if (joining.deadline.passed()) {
      joining.rendezvous.put(missing_key(joining.key), server.missing_text());
      fail_without(server.missing(), joining);
    }
    std::vector<pollfd> waits = server.waits();
    waits.push_back({listener.get(), POLLIN, 0});
    poll(waits.data(), waits.size(), wait_ms(joining.deadline));
    server.handle(waits);
    if (waits.back().revents == 0) continue;
    Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int problem = errno;
    const bool missing = !connection && out_of_descriptors(problem);
    if (shortage.lasts(missing)) fail_for_want_of_descriptors(problem, joining);
    // The connection stays in the backlog, and poll() would report it at once again.
    if (missing) std::this_thread::sleep_for(std::chrono::milliseconds(kAcceptAgainMs));
    if (connection && same_user(connection.get())) server.add(std::move(connection));
  }
  server.release_all();
}

// The time of this rank has passed, but perhaps not that of rank 0, which may have come later. Returns
// whether all ranks have joined in this very moment. Throws Timeout if rank 0 names the missing ones.
static bool ask_for_missing(const Fd& connection, const Joining& joining) {
  const Deadline end = Deadline::after_ms(kExplainMs);
  if (::send(connection.get(), &kWho, 1, MSG_NOSIGNAL) != 1) return false;
  std::array<char, kLongestReason> answer;
  while (!end.passed()) {
    pollfd wait{connection.get(), POLLIN, 0};
    if (poll(&wait, 1, wait_ms(end)) <= 0) continue;
    const ssize_t bytes = recv(connection.get(), answer.data(), answer.size(), 0);
    if (bytes <= 0) return false;
    if (answer[0] == kRelease) return true;
    const std::vector<int> missing =
        read_ranks(std::string(answer.data() + 1, static_cast<size_t>(bytes - 1)));
    if (!missing.empty()) fail_without(missing, joining);
  }
  return false;
}

void confirm_files(const Fd& connection, const Joining& joining) {
  bool ok = ::send(connection.get(), &kMapped, 1, MSG_NOSIGNAL) == 1;
  while (ok) {
    pollfd wait{connection.get(), POLLIN, 0};
    if (poll(&wait, 1, wait_ms(joining.deadline)) > 0) {
      char byte = 0;
      ok = recv(connection.get(), &byte, 1, 0) == 1;
      if (ok) return;
    }
    if (joining.check) joining.check();
    if (!joining.deadline.passed()) continue;
    if (ask_for_missing(connection, joining)) return;
    break;
  }
  look_for_cause(joining);
  MX_CHECK(!joining.deadline.passed(), Timeout,
           "[shm] expected all ranks of this host to join within the time limit");
  throw CommunicationError("[shm] expected shared memory on all ranks, but another rank has none or is lost");
}

TakenFiles take_files(int rank, const Joining& joining) {
  std::string entry;
  try {
    entry = in_steps(joining.check, joining.deadline,
                     [&](Deadline moment) { return joining.rendezvous.get(joining.key + "/shm", moment); });
  } catch (const Timeout&) {
    fail_without({0}, joining);
  }
  const Offer offer = parse_offer(entry, name_of(0, joining));
  Address server;
  server.name.sun_family = AF_UNIX;
  std::memcpy(server.name.sun_path, offer.address.data(), offer.address.size());
  server.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + offer.address.size());
  Hello hello{};
  std::memcpy(hello.token, offer.token.data(), sizeof(hello.token));
  hello.rank = rank;

  Fd connection = connect_to_first(server, joining);
  MX_CHECK(same_user(connection.get()), AuthenticationError, "[shm] expected ", name_of(0, joining),
           " to run as the same user, got another one");
  if (::send(connection.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello))) {
    const int error = errno;
    look_for_cause(joining);
    throw CommunicationError(mx::detail::concat("[shm] expected to send to ", name_of(0, joining),
                                                ", got: ", std::strerror(error)));
  }
  for (;;) {
    pollfd wait{connection.get(), POLLIN, 0};
    if (poll(&wait, 1, wait_ms(joining.deadline)) > 0) {
      SharedFiles files = receive_files(connection.get(), joining);
      return {std::move(files), std::move(connection)};
    }
    if (joining.check) joining.check();
    MX_CHECK(!joining.deadline.passed(), Timeout, "[shm] expected the shared memory from ",
             name_of(0, joining), " within the time limit");
  }
}

void share_files(int rank, int size, const Joining& joining, const std::function<SharedFiles()>& make,
                 const std::function<void(const SharedFiles&)>& map) {
  if (rank == 0) {
    SharedFiles files;
    try {
      files = make();
      map(files);
    } catch (const Error& error) {
      refuse_files(error.what(), joining);
      throw;
    }
    pass_files(files, size, joining);
    return;
  }
  TakenFiles taken;
  try {
    taken = take_files(rank, joining);
    map(taken.files);
  } catch (const Timeout&) {
    throw;
  } catch (const PeerLost&) {
    throw;
  } catch (const Error& error) {
    reject_files(rank, error.what(), joining);
    throw;
  }
  confirm_files(taken.connection, joining);
}

}  // namespace mx::comm::shm
