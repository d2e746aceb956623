// A rendezvous within one process, for groups of threads and for tests.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <memory>

#include "comm/rendezvous.h"

namespace mx::comm {

std::shared_ptr<Rendezvous> make_local_rendezvous();

}  // namespace mx::comm
