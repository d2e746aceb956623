#include "nn/data/batch_iterator.h"

#include "engine/base/check.h"

namespace mx::data {

detail::BatchRun& BatchIterator::checked() const {
  MX_CHECK(run_ != nullptr && !run_->at_end(), InvalidState,
           "[Loader] expected an iterator with a batch, got one at the end");
  return *run_;
}

}  // namespace mx::data
