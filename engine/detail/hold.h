// Hold: the variables that a segment keeps between its replays. Internal; under the engine's lock.
//
// Linking a replay to every variable that the segment touches costs about as much as running a short node per
// variable. So a replay is linked only to what it reads and to a variable of the segment's own, which every
// replay writes; the variables that it writes or updates the segment keeps. A kept variable looks, to
// everybody else, as if a writer had been granted that does not end (VarFlags::kVarKept). When anything else
// wants it, it is given up: at once if no replay is pending, else when the last replay linked so far has
// ended (until then kVarLost). The next replay then links it in the normal way, and a later one takes it
// again if it finds it free.
//
// Which replay is pending and which was the last is told by the counters of the segment's own variable: each
// replay is one write of it.
//
// Poison. A replay that fails poisons what is kept as it would poison what it had linked, and the next one
// may have been linked already. That one must be skipped if it updates any such variable; so it updates, not
// writes, the segment's own variable when the segment keeps a variable that it updates. When the last pending
// replay has ended and anything kept is poisoned, all is given up.
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
  std::vector<Link> reads;        // what the segment only reads
  std::vector<Link> vars;         // what it writes or updates; granted: kept, or lost and not yet given up
  std::vector<uint32_t> missing;  // of these, not kept
  std::vector<Lost> lost;         // of the missing, those that wait for a replay; in the order of `until`
  size_t updates = 0;             // kept variables that the segment updates
  bool poisoned = false;          // a granted one is
  bool over = false;              // the segment is gone

  // Who shares its variables with others would take and lose them in turns.
  size_t taken_away = 0;  // since the latest replay
  uint32_t rest = 0;      // replays to do without
  uint32_t patience = 0;  // how many the next time

  bool pending() const { return own->writes_linked != own->writes_done; }
  size_t kept() const { return vars.size() - missing.size(); }
};

}  // namespace mx::detail
