// Defines an operator outside the tree, and uses a file of arrays.
#include <mx/mx.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

struct Scaled : mx::CustomOp {
  double by = 1;
  template <class V>
  static void fields(V&& v) {
    v("by", &Scaled::by, "the factor");
  }
  static mx::Operator record() { return {.kernel = {"outside_scaled"}, .doc = "x * by.", .inputs = {"x"}}; }
  void infer(mx::InferContext& c) const { c.output(c.shape(0), mx::f32); }
  void forward(const mx::KernelArgs& args) const {
    if (by == 0) throw std::runtime_error("nothing is left of it");
    const mx::Tensor &x = args.in[0], &y = args.out[0];
    for (int64_t i = 0; i < y.numel(); ++i)
      y.as<float>()[i] = static_cast<float>(by) * x.as<float>()[i * x.strides[0]];
  }
};

const mx::Operator& half_of() {
  static const mx::Operator op = mx::unary_operator("outside_half", "x / 2.", [](auto x) { return x / 2; });
  return op;
}

int main() {
  using namespace mx;
  NDArray x = arange(0, 4, 1, f32);
  NDArray y = custom<Scaled>({x}, {{"by", 3.0}}) + 1;
  register_operator(half_of());
  NDArray z = call(*find_operator("outside_half"), {}, y);
  bool good = z.to_vector<float>() == std::vector<float>{0.5f, 2, 3.5f, 5};
  good = good && find_operator("outside_scaled") != nullptr;
  try {
    custom<Scaled>({x}, {{"by", 0}}).wait();
    good = false;
  } catch (const Error& e) {
    good = good && std::string(e.what()).find("nothing is left") != std::string::npos;
  }
  save_safetensors("outside.safetensors", {{"z", z}});
  good = good && load_safetensors("outside.safetensors").at("z").shape() == Shape{4};
  std::printf("outside operator: %s\n", good ? "good" : "WRONG");
  return good ? 0 : 1;
}
