// The fields() of options that many optimisers have: their names and descriptions stand here once. Internal.
//
//   template <class V>
//   static void fields(V&& v) {
//     detail::rate_field<MyOptions>(v);
//     v("rho", &MyOptions::rho, "decay rate of the averages");
//     detail::limit_fields<MyOptions>(v);
//   }
//
// The members themselves stand in each struct: with a common base, options could not be given in braces by
// name ({.lr = 0.1}).
#pragma once

namespace mx::optim::detail {

template <class Options, class V>
void rate_field(V& v) {
  v("lr", &Options::lr, "learning rate");
}
template <class Options, class V>
void penalty_field(V& v) {
  v("weight_decay", &Options::weight_decay,
    "L2 penalty: this factor times the parameter is added to its gradient");
}
template <class Options, class V>
void moment_fields(V& v) {
  v("beta1", &Options::beta1, "decay rate of the first moment");
  v("beta2", &Options::beta2, "decay rate of the second moment");
}
template <class Options, class V>
void maximize_field(V& v) {
  v("maximize", &Options::maximize, "maximise the loss instead of minimising it");
}
/// The options that torch does not have and all rules have; they come last.
template <class Options, class V>
void limit_fields(V& v) {
  v("clip", &Options::clip, "limit for the magnitude of each element of a gradient; 0: no limit");
  v("max_norm", &Options::max_norm, "limit for the norm of all gradients together; 0: no limit");
}

}  // namespace mx::optim::detail
