// Hold: the variables that a segment keeps between its replays. Internal; under the engine's lock.
//
// Linking a replay to every variable that the segment touches costs about as much as running a short node per
// variable. So a replay is linked only to the variables that it reads and to one variable of the segment's
// own, which every replay writes. The segment keeps the variables that it writes or updates. To all other
// operations a kept variable looks as if it were granted to a writer that does not end (VarFlags::kVarKept).
//
// When another operation needs a kept variable, the segment gives it up: at once if no replay is pending,
// else when the last replay linked so far has ended (kVarLost until then). The next replay is linked to that
// variable as usual. A later replay keeps it again if it is free.
//
// Each replay is one write of the segment's own variable. So the counters of that variable tell whether a
// replay is pending, and which one was the last.
//
// Poison. A replay that fails poisons the kept variables as it would poison linked ones. The next replay may
// already be linked, and must be skipped if it updates a poisoned variable. Therefore a replay updates the
// segment's own variable, instead of writing it, if the segment keeps a variable that it updates. When the
// last pending replay has ended and a kept variable is poisoned, the segment gives up all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/detail/op.h"

namespace mx::detail {

struct Hold {
  struct Lost {
    uint32_t index;
    uint32_t until;  // VarBlock::writes_done of `own`
  };

  VarBlock* own = nullptr;
  Hold* next = nullptr;           // of EngineImpl::holds_
  std::vector<Link> reads;        // variables that the segment only reads
  std::vector<Link> vars;         // those it writes or updates; granted if kept, or lost and not yet returned
  std::vector<uint32_t> missing;  // indices of those in `vars` that are not kept
  std::vector<Lost> lost;  // of the missing, those returned when a replay ends; in the order of `until`
  size_t updates = 0;      // kept variables that the segment updates
  bool poisoned = false;   // one of the granted variables is poisoned
  bool over = false;       // the segment has been destroyed

  // A segment that shares its variables with other operations would keep and lose them in turns. If most were
  // taken away since the latest replay, the next `rest` replays keep nothing.
  size_t taken_away = 0;  // variables given up since the latest replay
  uint32_t rest = 0;      // replays still to be linked to everything
  uint32_t patience = 0;  // the latest start of `rest`: doubled when that is set, halved when a replay keeps

  bool pending() const { return own->writes_linked != own->writes_done; }
  size_t kept() const { return vars.size() - missing.size(); }
};

}  // namespace mx::detail
