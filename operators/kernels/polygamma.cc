#include "operators/kernels/polygamma.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/polygamma_formulas.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels {

double polygamma(int64_t order, double x) { return formulas::polygamma<double>(order, x); }

void polygamma(const Tensor& out, const Tensor& in, int64_t order) {
  MX_CHECK(out.shape == in.shape && is_floating(out.dtype), InvalidArgument,
           "[polygamma] expected a floating-point result of shape ", in.shape, ", got ", out.dtype, " ",
           out.shape);
  MX_CHECK(order >= 0, InvalidArgument, "[polygamma] expected an order of 0 or more, got ", order);
  const LoopPlan<2> plan({&out, &in});
  // An element costs as much as dozens of additions.
  const auto body = [&](const int64_t* at, int64_t n) {
    constexpr int64_t kRun = 256;
    double buffer[kRun];
    const int64_t to = plan.strides[0][0], from = plan.strides[1][0];
    for (int64_t done = 0; done < n; done += kRun) {
      const int64_t here = std::min(kRun, n - done);
      load_run(buffer, in.data, in.dtype, at[1] + done * from, from, here);
      for (int64_t i = 0; i < here; ++i) buffer[i] = polygamma(order, buffer[i]);
      store_run(out.data, out.dtype, at[0] + done * to, to, buffer, here);
    }
  };
  parallel_runs<2>(plan, body, kLoopGrain / 32);
}

}  // namespace mx::kernels
