#include "comm/job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <typeinfo>
#include <utility>

#include "comm/host_name.h"
#include "comm/meeting_point.h"
#include "comm/module.h"
#include "comm/net/interface.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/local.h"
#include "comm/start.h"
#include "comm/transport_communicator.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace mx::comm {

namespace {

/// How long a rank that sees a broken connection waits for the rendezvous to tell the cause.
constexpr std::chrono::milliseconds kExplainWait{150};

bool several_hosts(const Place& place) { return place.local_size < place.size; }

}  // namespace

Job::Job(Place place) : place_(std::move(place)), host_(host_name()) {}

Job::~Job() { leave(false); }

Identity Job::identity() const {
  Identity self;
  self.job = place_.job.substr(0, Identity::kLongestJob);
  self.secret = secret_.empty() ? secret_of_job() : secret_;
  self.epoch = place_.epoch;
  self.rank = place_.rank;
  self.tls = tls_of_process();
  MX_CHECK(!several_hosts(place_) || !self.secret.empty(), InvalidArgument,
           "[job] expected a secret, because the ", place_.size, " processes run on several hosts (",
           place_.local_size,
           " on this one), got none; mxrun makes one, otherwise MX_SECRET_FILE names a file with one");
  MX_CHECK(
      self.tls == nullptr || self.tls->has_certificates() || !self.secret.empty(), InvalidArgument,
      "[job] expected a secret, because MX_TLS is psk, got none; mxrun makes one, otherwise MX_SECRET_FILE "
      "names a file with one");
  return self;
}

std::string Job::listen_address() {
  if (!place_.interface.empty()) return address_of_interface(place_.interface);
  if (!several_hosts(place_)) return address_of_interface("");
  const std::string address =
      address_towards(parse_endpoint(address_), Deadline::after_ms(place_.timeout_ms));
  MX_CHECK(!is_loopback(address), InvalidArgument,
           "[job] expected an address that other hosts reach, because the processes run on several, got ",
           address, " towards ", address_, "; MX_INTERFACE names an interface");
  return address;
}

std::string Job::find_rendezvous(Deadline deadline) {
  if (place_.started_by == "mxrun" || place_.started_by == "nothing") return place_.rendezvous;
  const bool by_mpi = place_.started_by == "mpirun" || place_.started_by == "mpiexec";
  if (by_mpi && place_.rendezvous.empty()) return share_rendezvous(deadline);
  const Endpoint at = rendezvous_of_rank_zero(place_, [](const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (place_.rank != 0 || place_.role != Role::worker) return to_string(at);
  return start_rendezvous(at.host, at.port, deadline);
}

std::string Job::start_rendezvous(const std::string& host, uint16_t port, Deadline deadline) {
  RendezvousServerOptions options;
  options.self = identity();
  options.address =
      place_.interface.empty() ? resolve(host, deadline) : address_of_interface(place_.interface);
  MX_CHECK(!several_hosts(place_) || !place_.interface.empty() || !is_loopback(options.address),
           InvalidArgument, "[job] expected an address of '", host, "' that other hosts reach, got ",
           options.address, "; MX_INTERFACE names an interface");
  options.port = port;
  options.dead_after_ms = place_.dead_after_ms;
  server_ = std::make_unique<RendezvousServer>(std::move(options));
  return server_->address();
}

std::string Job::share_rendezvous(Deadline deadline) {
  const bool several = several_hosts(place_), encrypted = tls_of_process() != nullptr;
  SharedRendezvous shared =
      share_over_mpi(load_module("mpi"), place_, several && encrypted, [&](const std::string& secret) {
        secret_ = secret;
        return start_rendezvous(several ? host_ : std::string("127.0.0.1"), 0, deadline);
      });
  secret_ = std::move(shared.secret);
  return std::move(shared.address);
}

std::shared_ptr<Rendezvous> Job::rendezvous() {
  std::lock_guard making(making_);
  if (client_) return client_;
  MX_CHECK(!left_, InvalidState, "[rendezvous] expected a running process, got one that ends");
  if (place_.size == 1 && place_.rendezvous.empty()) return nullptr;
  const Deadline deadline = Deadline::after_ms(place_.timeout_ms);
  RendezvousClientOptions options;
  if (address_.empty()) address_ = find_rendezvous(deadline);
  options.self = identity();
  options.address = address_;
  if (place_.started_by != "nothing") options.run_by = place_.started_by == "mxrun" ? "mxrun" : "rank 0";
  options.host = host_;
  options.role = place_.role == Role::worker ? "worker" : "server";
  options.heartbeat_ms = place_.heartbeat_ms;
  options.dead_after_ms = place_.dead_after_ms;
  options.on_broken = [this](std::exception_ptr error) { fail(std::move(error)); };
  auto client = std::make_shared<RendezvousClient>(std::move(options), deadline);
  {
    std::lock_guard lock(mutex_);
    client_ = client;
    client_->set_step(step_);
  }
  // First this one, so that the cause of a loss is known when the loss is told: processes report it before
  // they fail.
  causes_watch_ =
      client->watch(consequence_prefix(place_.epoch),
                    [this](std::string_view key, std::string_view value) { on_consequence(key, value); });
  watch_ = client->watch(lost_prefix(place_.epoch),
                         [this](std::string_view key, std::string_view value) { on_lost(key, value); });
  return client_;
}

void Job::on_consequence(std::string_view key, std::string_view value) try {
  Consequence consequence = parse_consequence(key, value);
  std::lock_guard lock(mutex_);
  const ProcessName process = consequence.process;
  causes_.emplace(process, std::move(consequence));  // only the first one of a process counts
} catch (const Error&) {
  // It would only have made a message clearer.
}

std::string Job::cause_of(const LostProcess& lost) {
  const ProcessName first{lost.role, lost.rank};
  ProcessName cause = first;
  std::string host;
  {
    std::lock_guard lock(mutex_);
    for (size_t steps = 0; steps <= causes_.size(); ++steps) {  // a circle ends, too
      const auto next = causes_.find(cause);
      if (next == causes_.end()) break;
      cause = next->second.cause;
      host = next->second.host;
    }
  }
  if (cause == first) return "";
  if (host.empty() && cause.role == "worker") host = host_of(cause.rank);
  return mx::detail::concat("; it failed because of ", cause.role == "worker" ? "rank" : cause.role, " ",
                            cause.rank, host.empty() ? "" : " on host " + host);
}

void Job::on_lost(std::string_view key, std::string_view value) {
  std::string text;
  try {
    const LostProcess lost = parse_lost(key, value);
    text = mx::detail::concat("[job] expected every process to stay, got a lost process: ", to_string(lost),
                              cause_of(lost));
  } catch (const Error& error) {
    text = mx::detail::concat("[job] expected every process to stay, got a loss that is malformed: ",
                              error.what());
  }
  {
    std::lock_guard lock(mutex_);
    if (!loss_) loss_ = text;
  }
  fail(std::make_exception_ptr(PeerLost(text)));
}

void Job::fail(std::exception_ptr error) {
  std::vector<std::shared_ptr<Communicator>> groups;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const auto& held : groups_)
      if (auto group = held.lock()) groups.push_back(std::move(group));
  }
  lost_.notify_all();
  for (const auto& group : groups) group->abort(error);
}

std::string Job::explain_loss(int rank) {
  std::string text;
  {
    std::unique_lock lock(mutex_);
    lost_.wait_for(lock, kExplainWait, [this] { return failure_ != nullptr; });
    text = loss_.value_or("");
  }
  if (text.empty()) report_cause(rank);
  return text;
}

bool Job::knows_failure() noexcept try {
  if (noticed_failure_) return true;
  std::vector<std::shared_ptr<Communicator>> groups;  // used and released without the lock
  {
    std::lock_guard lock(mutex_);
    if (failure_) return true;
    for (const auto& held : groups_)
      if (auto group = held.lock()) groups.push_back(std::move(group));
  }
  return std::any_of(groups.begin(), groups.end(),
                     [](const auto& group) { return group->failure() != nullptr; });
} catch (...) {
  return true;
}

void Job::report_cause(int rank, bool late) noexcept {
  noticed_failure_ = true;
  std::shared_ptr<RendezvousClient> client;
  {
    std::lock_guard lock(mutex_);
    client = client_;
  }
  if (client == nullptr) return;
  report_consequence(*client, {place_.epoch, {"worker", place_.rank}, {"worker", rank}, late, host_of(rank)});
}

/// The name of the host of a worker; empty if no group knows it yet.
std::string Job::host_of(int rank) {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(rank) < hosts_.size() ? hosts_[static_cast<size_t>(rank)] : "";
}

void Job::check() {
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Job::check_departures(Departures& departures, const std::string& group) {
  const std::optional<EndedWorker> ended = departures.look();
  if (!ended) return;
  report_cause(ended->rank);
  throw PeerLost(mx::detail::concat("[world] expected all ", place_.size, " ranks to join group '", group,
                                    "', got rank ", ended->rank, " on host ", ended->host,
                                    ", which ended with exit status 0 before it joined"));
}

std::shared_ptr<Communicator> Job::connect_group_of(GroupRequest& request, GroupMaker make,
                                                    bool may_use_tcp) {
  request.address = listen_address();
  request.self = identity();
  try {
    return make(request);
  } catch (const CommunicationError& error) {
    // Only this type says, to all ranks, that the host does not give them shared memory. The derived types
    // are losses and strangers.
    if (!may_use_tcp || typeid(error) != typeid(CommunicationError)) throw;
    log(LogLevel::warning, mx::detail::concat("[world] no shared memory, so TCP is used: ", error.what()));
    return make_tcp_group(request);
  }
}

std::shared_ptr<Communicator> Job::make_group(const std::string& transport, const std::string& key) {
  MX_CHECK(place_.role == Role::worker, InvalidState, "[world] expected a worker, got server ", place_.rank,
           ": groups have workers only");
  std::string name = transport;
  const char* const chosen = std::getenv("MX_TRANSPORT");
  std::string named_in = "from new_group()";
  if (name == "auto" && chosen != nullptr && *chosen != '\0') {
    name = chosen;
    named_in = "from MX_TRANSPORT";
  }
  const bool choose = name == "auto";
  if (choose) {
    name = several_hosts(place_) ? "shm+tcp" : "shm";
    named_in = "the default";
  }
  if (tls_of_process() != nullptr && place_.rank == 0 && (name == "mpi" || name == "nccl") &&
      !warned_of_clear_text_.exchange(true))
    log(LogLevel::warning,
        mx::detail::concat("[world] TLS encrypts the rendezvous and the connections to servers, but not the "
                           "traffic of transport ",
                           name, "; the transports tcp and shm+tcp are encrypted"));
  // A group over NCCL takes memory of GPUs, also if it has one rank.
  if (place_.size == 1 && name != "nccl") {
    find_transport(name);  // throws for an unknown one
    auto group = make_group_of_one(host_, place_.timeout_ms);
    add_group(group);
    return group;
  }
  GroupRequest request;
  request.place = place_;
  request.rendezvous = rendezvous();
  if (request.rendezvous == nullptr) request.rendezvous = make_local_rendezvous();  // alone, without a job
  std::lock_guard making(making_);
  request.key = key;
  request.host = host_;
  request.timeout_ms = place_.timeout_ms;
  request.explain_loss = [this](int rank) { return explain_loss(rank); };
  request.noticed_loss = [this](int rank) { report_cause(rank); };
  request.noticed_timeout = [this](int rank) { report_cause(rank, true); };
  const auto departures = std::make_shared<Departures>(request.rendezvous, place_.epoch, key, place_.rank);
  const auto failures = std::make_shared<GroupFailures>(request.rendezvous, place_.epoch, key, place_.rank);
  request.check = [this, key, held = std::weak_ptr(departures), told = std::weak_ptr(failures)] {
    // First what a rank has told: its process may be lost since, for that reason.
    if (const auto looked_at = told.lock()) check_failures(*looked_at);
    if (const auto looked_at = held.lock()) check_departures(*looked_at, key);
    check();
  };
  try {
    const GroupMaker make = find_transport(name);
    failures->compare(host_, name, named_in);
    wait_for_first(*failures, request);
    const auto group = connect_group_of(request, make, choose && name == "shm");
    add_group(group);
    // Only now, because the calls of the measurement must fail when a process is lost.
    set_cost_model(*group);
    return group;
  } catch (const PeerLost&) {
    check_told(*failures);
    throw;  // the others find that out themselves
  } catch (const Timeout&) {
    throw;
  } catch (...) {
    failures->tell(host_, current_exception_text());
    throw;
  }
}

/// Throws if another rank does not join, or uses another transport. Such a rank may end later than this one,
/// so this one says first that it fails because of it.
void Job::check_failures(GroupFailures& failures) {
  if (const std::optional<int> rank = failures.failed_rank()) report_cause(*rank);
  failures.check();
}

/// Waits until rank 0 has said which transport it uses. Throws if this rank uses another one: if it
/// connected, the others could take it for a member before they learn of that.
void Job::wait_for_first(GroupFailures& failures, const GroupRequest& request) {
  constexpr int64_t kLookMs = 50;
  const Deadline deadline = Deadline::after_ms(place_.timeout_ms);
  while (!failures.wait_for_first(kLookMs)) {
    request.check();
    if (!deadline.passed()) continue;
    report_cause(0, true);
    throw Timeout(mx::detail::concat("[world] expected rank 0 to join group '", request.key, "' within ",
                                     place_.timeout_ms, " ms, got no word from it"));
  }
  check_failures(failures);
}

/// After a lost connection: throws the reason for which a rank does not join, if one has told it. The word
/// may come later than the end of the connection.
void Job::check_told(GroupFailures& failures) {
  const Deadline deadline = Deadline(Deadline::Clock::now() + kExplainWait);
  for (;;) {
    check_failures(failures);
    if (deadline.passed()) return;
    ::poll(nullptr, 0, 5);
  }
}

void Job::add_group(const std::shared_ptr<Communicator>& group) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < group->size(); ++rank) hosts.push_back(group->host(rank));
  std::exception_ptr failure;
  {
    std::lock_guard lock(mutex_);
    hosts_ = std::move(hosts);
    std::erase_if(groups_, [](const auto& held) { return held.expired(); });
    groups_.push_back(group);
    failure = failure_;
  }
  if (failure) group->abort(failure);
}

void Job::set_cost_model(Communicator& group) {
  auto* const messages = dynamic_cast<TransportCommunicator*>(&group);
  if (messages == nullptr || messages->size() == 1) return;
  std::optional<CostModel>& model = cost_models_[messages->type()];  // equal on all ranks
  if (!model) {
    CallOptions options;
    options.what = "whether to fit the cost model";
    int64_t fits = place_.fit_cost_model ? 1 : 0;
    messages->broadcast(&fits, &fits, 1, Type::i64, 0, options);
    model = fits != 0 ? messages->fit() : messages->model();
  }
  messages->set_model(*model);
}

std::shared_ptr<Communicator> Job::world() {
  std::lock_guard one_by_one(groups_making_);
  if (world_failure_) std::rethrow_exception(world_failure_);
  if (world_) return world_;
  MX_CHECK(!left_, InvalidState, "[world] expected a running process, got one that ends");
  try {
    return world_ = make_group("auto", "world");
  } catch (...) {
    // Other ranks may have been connected already, so a second attempt could not succeed.
    world_failure_ = std::current_exception();
    noticed_failure_ = true;
    throw;
  }
}

std::shared_ptr<Communicator> Job::new_group(const std::string& transport) {
  std::lock_guard one_by_one(groups_making_);
  MX_CHECK(!left_, InvalidState, "[new_group] expected a running process, got one that ends");
  return make_group(transport, "group" + std::to_string(next_group_++));
}

void Job::report_step(int64_t step) {
  std::lock_guard lock(mutex_);
  step_ = step;
  if (client_) client_->set_step(step);
}

void Job::abort_at_exit() noexcept try {
  std::unique_lock one_by_one(groups_making_, std::try_to_lock);
  std::unique_lock making(making_, std::try_to_lock);
  if (!one_by_one || !making || left_) return;
  left_ = true;
  if (world_)
    world_->abort(
        std::make_exception_ptr(InvalidState("[world] expected a running process, got one that ends")));
  world_.reset();
  std::shared_ptr<RendezvousClient> client;
  {
    std::lock_guard lock(mutex_);
    client = client_;
  }
  if (client) {
    client->unwatch(watch_);
    client->unwatch(causes_watch_);
  }
} catch (...) {
  // At the end of the process nobody is left to report to.
}

void Job::leave(bool success) noexcept try {
  // Another thread may be connecting, which takes as long as its deadline. The end of the process does not
  // wait for it.
  std::unique_lock one_by_one(groups_making_, std::try_to_lock);
  std::unique_lock making(making_, std::try_to_lock);
  if (!one_by_one || !making || left_) return;
  left_ = true;
  const auto ends =
      std::make_exception_ptr(InvalidState("[world] expected a running process, got one that ends"));
  if (!success && world_) world_->abort(ends);
  if (knows_failure()) noticed_failure_ = true;  // before the groups get an error that is no failure
  world_.reset();
  std::shared_ptr<RendezvousClient> client;
  std::vector<std::weak_ptr<Communicator>> groups;
  {
    std::lock_guard lock(mutex_);
    client = std::exchange(client_, nullptr);
    groups.swap(groups_);
  }
  // The program may end in its middle and hold its groups. The others must not wait for this process, which
  // may now wait for them.
  if (success)
    for (const auto& held : groups)
      if (const auto group = held.lock()) group->leave_at_exit(ends);
  // The others may work as long as they like, and the rendezvous drops those that are lost or stopped. After
  // a failure one may be stuck for good.
  const Deadline limit = Deadline::after_ms(place_.timeout_ms);
  const auto wait_for_others = [&](size_t own) {
    while (server_->counts().connections > own && !(limit.passed() && knows_failure())) ::poll(nullptr, 0, 2);
  };
  if (server_ && success) wait_for_others(client ? 1 : 0);
  if (client) {
    client->unwatch(watch_);
    client->unwatch(causes_watch_);
    if (success) client->farewell();
    client.reset();
  }
  if (server_ && success) {
    wait_for_others(0);
    if (server_->counts().lost > 0) noticed_failure_ = true;
  }
  server_.reset();
} catch (...) {
  // At the end of the process nobody is left to report to.
}

}  // namespace mx::comm
