#include "comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "comm/algorithms.h"
#include "engine/base/error.h"

namespace mx::comm {

namespace {

int count_machines(const Transport& transport) {
  std::vector<std::string> machines;
  for (int rank = 0; rank < transport.size(); ++rank) machines.push_back(transport.machine(rank));
  std::sort(machines.begin(), machines.end());
  return static_cast<int>(std::unique(machines.begin(), machines.end()) - machines.begin());
}

/// Within a handler of PeerLost or Timeout: throws the difference between the calls if that is what made the
/// other rank end, else the error.
[[noreturn]] void give_up_after_loss(Call& call) {
  const std::exception_ptr mismatch = call.arrived_mismatch();
  const std::exception_ptr error = mismatch ? mismatch : std::current_exception();
  call.give_up(error, false);
  std::rethrow_exception(error);
}

}  // namespace

Collectives::Collectives(Transport& transport)
    : transport_(transport),
      workspace_(transport.size()),
      model_(transport.size(), count_machines(transport)),
      numbers_(transport.size()) {}

Algorithm Collectives::algorithm_of(const Request& request) const {
  if (request.collective != Collective::allreduce) return Algorithm::gather;
  if (algorithm_ && (request.options.order == Order::any || folds_by_rank(*algorithm_))) return *algorithm_;
  return model_.choose(request.count * size_of(request.type), request.options.order);
}

void Collectives::run(const Request& request, Deadline deadline) {
  if (transport_.size() == 1) return run_alone(request);
  const Algorithm algorithm = algorithm_of(request);
  Call call(transport_, workspace_, request, numbers_.next(request), static_cast<uint8_t>(algorithm),
            deadline);
  try {
    run_together(call, algorithm);
  } catch (const ProtocolError&) {
    call.give_up(std::current_exception(), true);
    throw;
  } catch (const PeerLost&) {
    give_up_after_loss(call);
  } catch (const Timeout&) {
    give_up_after_loss(call);
  } catch (...) {
    call.give_up(std::current_exception(), false);
    throw;
  }
}

void Collectives::run_alone(const Request& request) {
  if (request.collective == Collective::barrier || request.count == 0 || request.out == request.in) return;
  std::memmove(request.out, request.in, request.count * size_of(request.type));
}

void Collectives::run_together(Call& call, Algorithm algorithm) {
  switch (call.request().collective) {
    case Collective::allreduce:
      switch (algorithm) {
        case Algorithm::gather:
          return allreduce_gather(call);
        case Algorithm::direct:
          return allreduce_direct(call);
        case Algorithm::ring:
          return allreduce_ring(call);
        case Algorithm::two_level:
          return allreduce_two_level(call);
      }
      return;
    case Collective::reduce_scatter:
      return reduce_scatter_direct(call);
    case Collective::allgather:
      return allgather_direct(call);
    case Collective::broadcast:
      return broadcast_tree(call);
    case Collective::all_to_all:
      return all_to_all_direct(call);
    case Collective::barrier:
      return barrier_dissemination(call);
    case Collective::send:
    case Collective::receive:
      return point_to_point(call);
  }
}

}  // namespace mx::comm
